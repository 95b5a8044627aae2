package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/limittest"
)

func (t *Tokenizer) mustEncode(text string) []int32 {
	ids, err := t.Encode(text)
	if err != nil {
		panic(err)
	}
	return ids
}

func (t *Tokenizer) mustEncodePrompt(text string) []int32 {
	ids, err := t.EncodePrompt(text)
	if err != nil {
		panic(err)
	}
	return ids
}

// hostile writes a tokenizer of the letters a and b with further keys.
func hostile(t *testing.T, keys string) string {
	t.Helper()
	dir := t.TempDir()
	file := fmt.Sprintf(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"U":2},"merges":[],"unk_token":"U"}%s}`, keys)
	require.NoError(t, os.WriteFile(filepath.Join(dir, tokenizerName), []byte(file), 0o600))
	return dir
}

func splitAt(pattern string) string {
	return fmt.Sprintf(`,"pre_tokenizer":{"type":"Split","pattern":{"Regex":%q},"behavior":"Isolated"}`, pattern)
}

func doublings(n int) string {
	return `[` + strings.TrimSuffix(strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, n),
		",") + `]`
}

// Patterns and replacements of a hostile tokenizer end with an error.
func TestHostile(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a", 5000) + "!"
	for name, keys := range map[string]string{
		"exponential pattern": splitAt(`(a+)+$`),
		"polynomial pattern":  splitAt(`a*a*a*a*a*a*a*a*b`),
		"look-ahead":          splitAt(`(?=(a+)+$)a`),
		"quadratic pattern":   `,"normalizer":{"type":"Replace","pattern":{"Regex":"(a+)+$"},"content":"b"}`,
		"doublings":           `,"normalizer":{"type":"Sequence","normalizers":` + doublings(40) + `}`,
		"one large replacement": `,"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"` +
			strings.Repeat("b", 1<<20) + `"}`,
		"large prefixes": `,"normalizer":{"type":"Sequence","normalizers":[` + strings.TrimSuffix(
			strings.Repeat(`{"type":"Prepend","prepend":"`+strings.Repeat("b", 1<<20)+`"},`, 9), ",") + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := Load(hostile(t, keys))
			require.NoError(t, err)
			_, err = tok.Encode(text)
			require.ErrorIs(t, err, ErrLimit)
			ids, err := tok.Encode("b")
			require.True(t, err == nil && len(ids) > 0 || name == "large prefixes", "%v", err)
		})
	}
}

// A normalizer that makes an added token too large is refused when it is loaded, and a
// decoder returns what it has.
func TestHostileTokens(t *testing.T) {
	_, err := Load(hostile(t, `,"normalizer":{"type":"Sequence","normalizers":`+doublings(40)+`},
		"added_tokens":[{"id":3,"content":"aaa","normalized":true,"special":false}]`))
	require.ErrorIs(t, err, ErrLimit)
	require.ErrorContains(t, err, "normalize added token 3")
	tok, err := Load(hostile(t, `,"decoder":{"type":"Sequence","decoders":`+doublings(40)+`}`))
	require.NoError(t, err)
	limittest.Run(t, func() { require.Less(t, len(tok.Decode(make([]int32, 1000))), 1<<22) })
}
