package lossy

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The texts in testdata/golden.json are Python's, written by testdata/golden.py.
func TestGolden(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var golden map[string]string
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Greater(t, len(golden), 1500)
	for bytes, want := range golden {
		text, err := hex.DecodeString(bytes)
		require.NoError(t, err)
		require.Equal(t, want, String(string(text)), bytes)
	}
}

func FuzzString(f *testing.F) {
	f.Add("a\xe4\xbd\xf0\x9f\x98\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, text string) {
		got := String(text)
		require.True(t, utf8.ValidString(got))
		require.Equal(t, strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\ufffd", ""),
			strings.ReplaceAll(got, "\ufffd", ""))
		require.LessOrEqual(t, utf8.RuneCountInString(got), utf8.RuneCountInString(text))
	})
}
