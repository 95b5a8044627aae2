package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPromptForms(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int{`"a"`: 1, `["a","b"]`: 2, `[1,2,3]`: 1, `[[1],[2,3]]`: 2,
		` [ [1] ]`: 0, `[]`: 1} {
		texts, ids, err := decodePrompts(json.RawMessage(raw), 2)
		if want == 0 {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, raw)
		require.Equal(t, want, len(texts)+len(ids), raw)
	}
	_, _, err := decodePrompts(json.RawMessage(`["a","b","c"]`), 2)
	require.Error(t, err)
}
