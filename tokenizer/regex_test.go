package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/tokenizer/internal/split"
)

// Patterns split texts as with Hugging Face tokenizers (version 0.23.3), or are
// errors. testdata/python/patterns.py writes testdata/patterns.json.
func TestPatterns(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/patterns.json")
	require.NoError(t, err)
	var golden []struct {
		Pattern, Error string
		Rows           [][]string
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Greater(t, len(golden), 70)
	unsupported := []string{`(?<name>a)b`, `(a)\1`, `\pL`, `\X`, `[a&&]`}
	for _, c := range golden {
		find, err := split.Compile(c.Pattern)
		if c.Error != "" || slices.Contains(unsupported, c.Pattern) {
			require.ErrorContains(t, err, "is not supported", c.Pattern)
			continue
		}
		require.NoError(t, err, c.Pattern)
		for _, want := range c.Rows {
			text := strings.Join(want, "")
			got := cut(text, &split.Pattern{Find: find, Behavior: split.Isolated})
			require.Equal(t, want, got, "%s %+q", c.Pattern, text)
		}
	}
}
