package secret

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile are parts of texts that make rules look far ahead again and again.
var hostile = []string{
	"Auth:[]", "Auth:[ ", "token=[{", "token=\"$(", "token=\"$A", "token=[]string{", "token=(\"", "<token>", "<token",
	"token value: ", "token\n", "http://a:b c ", "'token=", "-c 'token=", "--token \"$A\" ",
	"a", "/", "//", "://", "a://", "http://", "http://a:b/", "http://a@", "http://a:b@c,", "a,http://",
	"http://a/a;a=", "http://a/=", ":", "a:", "a:a", "@", "a@", "a:b@", "a:@", "@@@@a:", "a@a:", "%", "%2f",
	"%2f%2f", "%25", "%2525", "%252f%252f)", "25", "%2f%2f/", "\\", "\\\\/", "\\/\\/", ":\\/\\/", "\"", "'",
	"\\\"", "\\'", "\"'", "'\"", "'\"'", "\"'\"", "\\\\\"", "token=", "token=\"", "token=\\\"", "token='",
	"token=[", "token=[\"", "token=['a',", "token={", "token=$(", "token=$A", "token=,", "token=)",
	"token=a\"b", "token=a'b", "token=\\ ", "token: ", "token: {", "\ntoken: ", "token=\"\"\"", "token='''",
	"token =", "token== ", "--token ", "--token a ", "--token,", "\"--token\",", "\"--token\", \"a", "--a=",
	"--a ", "-u ", "-u a:b ", "-u a", "-u '", "-u \"", "-u a:1 ", "curl -u", "curl -b ", "mysql -p",
	"mysql -p ", "login -p-p", "sshpass -p '", "Authorization: ", "Authorization:", "\"Authorization: ",
	"\"Authorization: a\\\"", "Authorization: $A ", "Cookie: a=\"", "Cookie:=\"a", "Cookie:)",
	"Authorization: TOKEN ", "Authorization: Bearer ", "bearer ", "bearer a", "bearer 1", "Bearer", "sk-",
	"sk-a=", "hf_", "eyJ", "sk-1234567890123456", "AKIA.", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----",
	"-----", "-", "--", "_", ".", "***", "*", "**** ", "*** ", "token=***", "http://***", " ", "\t", "\n", ",",
	";", "&", "|", ";a", "&a", ",a=", "=", "a=", "a= ", "==", "[", "]", "{", "}", "(", ")", "<", ">", "`",
	"\xff", "\x00", "é", "a.", "a-", "a_", "0", "0a", "aA0", "abcdef0123456789", "A0b/", "a/", "?", "#",
	"http://a?", "http://a#", "http://a?b,http://", "http://a:b?@ ", "http://a:b ", "//a:b ", "//a@", "//a?",
	"a//", "pass@", "http://[", "http://]:", "key=", "--key ", "KEY=", "pwd=", "a_token a ",
	"aws_secret_access_key ", "http://a/bot1234567:", "http://hook/1/", "http://a/%2f",
}

// TestWorkIsLinear counts the bytes that rules examine, which would be thousands for each
// byte if a rule looked through the rest of the text again and again.
func TestWorkIsLinear(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", `"`, "'", "@host", `\"`, `\\\"`, " http://a:b", "x"} {
		for _, part := range hostile {
			text := strings.Repeat(part, 3000/len(part)) + end
			for _, command := range []bool{false, true} {
				s := scanner{text: text, command: command}
				s.scan()
				require.Less(t, s.looked, maxLooked/4*len(text), "%q until %q", part, end)
			}
		}
	}
}

func TestLongTexts(t *testing.T) {
	t.Parallel()
	const size = 1 << 19
	for _, part := range []string{"//", "a:b@", `token="`, "--a=", "-u ", `\"`, "http://a:b/", "Cookie: "} {
		text := strings.Repeat(part, size/len(part))
		require.Equal(t, Hide(text), Hide(Hide(text)))
	}
}

// TestTooMuchWork hides texts that take more work than their size allows.
func TestTooMuchWork(t *testing.T) {
	t.Parallel()
	s := scanner{text: "steps 3", looked: maxLooked*len("steps 3") + 1}
	require.Equal(t, stars, s.scan())
}
