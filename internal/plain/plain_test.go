package plain

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "",
		"plain\n\ttext, Grüße, 你好, שלום, 👩‍💻": "plain\n\ttext, Grüße, 你好, שלום, 👩‍💻",
		"\x1b[2J\x1b[31mred":                    `\x1b[2J\x1b[31mred`,
		"\x1b]8;;http://evil.example\x1b\\link": `\x1b]8;;http://evil.example\x1b\link`,
		"\x1b]52;c;cm0gLXJm\a":                  `\x1b]52;c;cm0gLXJm\a`,
		"\u009b2J \u0090q\u009c":                `\u009b2J \u0090q\u009c`,
		"\x9b2J":                                `\x9b2J`,
		"safe\rerror: ok\b\b\x00\v\f\x7f":       `safe\rerror: ok\b\b\x00\v\f\x7f`,
		"a\u202egpj.exe\u2066x\u2069":           `a\u202egpj.exe\u2066x\u2069`,
		"cut \xe4\xbd":                          `cut \xe4\xbd`,
		"a\u200b\u200db\u200f\u061c\u2060\ufeff" +
			"\u00ad\u180e\u2028\U000e0041": `a\u200b\u200db\u200f\u061c\u2060\ufeff\u00ad\u180e\u2028\U000e0041`,
		"\ufffd": "\ufffd",
	} {
		require.Equal(t, want, Text(text))
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("\x1b]52;c;x\a \u009b2J \u202e \x7f \\u001b \"")
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := json.Marshal(map[string]string{text: text})
		require.NoError(t, err)
		var b bytes.Buffer
		n, err := JSONWriter{&b}.Write(doc)
		require.NoError(t, err)
		require.Len(t, doc, n)
		got := b.Bytes()
		require.Equal(t, string(got), Text(string(got)), "nothing is left to replace")
		var want, back map[string]string
		require.NoError(t, json.Unmarshal(doc, &want))
		require.NoError(t, json.Unmarshal(got, &back))
		require.Equal(t, want, back)
		require.True(t, utf8.ValidString(Text(text)))
	})
}
