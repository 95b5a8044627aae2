package secret

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// positions are texts that Hide masks a secret in, in place of SECRET.
var positions = []string{
	"https://ann:SECRET@example.com/v1", "http://SECRET@[::1]:8080", "https://example.com/a?key=SECRET",
	"https://example.com/#SECRET", `"https:\/\/ann:SECRET@example.com\/v1"`,
	"https%3A%2F%2Fann%3ASECRET%40example.com", "//ann:SECRET@example.com",
	"https://hooks.example.com/services/T0123/SECRET7", "https://example.com/a;jsessionid=SECRET",
	"https://example.com/api_key=SECRET", "http://a:80,http://ann:SECRET@b:81", "ann:SECRET@example.com:5432",
	"http://ann:SECRET", "password=SECRET", `password = "SECRET"`, "password = 'SECRET' # end",
	"password = \"\"\"\nSECRET\n\"\"\"", `api_keys = ["SECRET", 'SECRET']`, `{"password": "SECRET", "n": 1}`,
	`{\"password\":\"SECRET\"}`, `{\\\"password\\\":\\\"a SECRET\\\"}`, "api_key: SECRET", "Password: SECRET",
	`export TOKEN="a SECRET"`, "TOKEN=ab'c SECRET'", `TOKEN=a"b"'c'SECRET`, `TOKEN='a'\''SECRET'`,
	`TOKEN=a\ SECRET`, "env TOKEN=SECRET run", "--token SECRET", "--token=SECRET", "-token SECRET",
	`["run", "--token", "SECRET"]`, `["run", "--token", 'SECRET']`, `[run --token "SECRET"]`,
	`["run", "--token=SECRET"]`, `run --token "a SECRET"`, "curl -u ann:SECRET host", "curl -uann:SECRET",
	"curl --user=ann:SECRET host", "sshpass -p SECRET ssh host", "mysql -pSECRET", "docker login -p SECRET",
	`["docker", "login", "-p", "SECRET"]`, "Authorization: Basic SECRET",
	`"Authorization: Digest user=\"ann\", response=\"SECRET\""`,
	`Authorization: Digest user="ann", response="SECRET"`, `-H 'Cookie: a=b; c=SECRET'`,
	`{"Authorization": "Bearer SECRET"}`, "Authorization=Bearer SECRET", "Bearer SECRET1", "X-Api-Key: SECRET",
	"sk-0123456789abSECRET", "hf_0123456789abSECRET",
	"-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----",
}

// letters keeps what is safe in every position of a word.
func letters(r rune) rune {
	if strings.ContainsRune("!%^+~_-.*äß密", r) || r < 0x80 && isAlphanumeric(byte(r)) {
		return r
	}
	return -1
}

// safe returns a secret that is one word in every position.
func safe(secret string) string { return "x" + strings.Map(letters, secret) + "y" }

func TestPositions(t *testing.T) {
	t.Parallel()
	for _, position := range positions {
		for _, secret := range []string{"xhunter2y", "xa*by", "x***y", "xk.~_y", "xäß密y", "x!%^+y"} {
			text := strings.ReplaceAll(position, "SECRET", secret)
			for _, mask := range []func(string) string{Hide, Arguments} {
				shown := mask(text)
				require.NotContains(t, shown, secret, text)
				require.True(t, Hidden(shown), shown)
				require.Equal(t, shown, mask(shown))
			}
		}
	}
}

func FuzzHide(f *testing.F) {
	for i, row := range slices.Concat(secretRows, commandRows, moreRows) {
		text, _, _ := unmarked(row)
		f.Add(text, "hunter2", "", uint16(i))
	}
	for i, part := range hostile {
		f.Add(strings.Repeat(part, 3), "a*b", part, uint16(i))
	}
	f.Fuzz(func(t *testing.T, before, secret, after string, choice uint16) {
		i := int(choice)
		harmless := harmlessRows[i%len(harmlessRows)] + "\n" + harmlessRows[i/7%len(harmlessRows)]
		for _, mask := range []func(string) string{Hide, Arguments} {
			shown := mask(before)
			require.Equal(t, shown, mask(shown))
			if shown != before {
				require.True(t, Hidden(shown), "%q of %q", shown, before)
			}
			require.Equal(t, harmless, mask(harmless))
		}
		secret = safe(secret)
		position := positions[i%len(positions)]
		if len(secret) < 5 || strings.Contains(before+after+position, secret) {
			return
		}
		// An open quote or list changes what follows.
		before = strings.NewReplacer(`"`, "", "'", "", `\`, "", "[", "").Replace(before)
		text := before + "\n" + strings.ReplaceAll(position, "SECRET", secret) + "\n" + after
		require.NotContains(t, Hide(text), secret, text)
		require.NotContains(t, Arguments(text), secret, text)
	})
}
