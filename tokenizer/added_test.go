package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ids and texts in testdata/added.json are Hugging Face tokenizers' (version
// 0.23.3), written by testdata/python/added.py.
func TestAddedTokens(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/added.json")
	require.NoError(t, err)
	var golden struct {
		Kinds map[string]object
		Cases []struct {
			Kind  string
			Added []object
			Rows  []struct {
				Text    *string
				IDs     []int32
				Decoded string
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden.Cases, 12*len(golden.Kinds))
	for i, c := range golden.Cases {
		file := maps.Clone(golden.Kinds[c.Kind])
		file["added_tokens"] = c.Added
		tok, err := Load(write(t, object{"tokenizer.json": file}))
		require.NoError(t, err, c.Kind)
		for _, r := range c.Rows {
			if r.Text != nil {
				require.Equal(t, r.IDs, append([]int32{}, tok.mustEncode(*r.Text)...), "case %d %s %+q", i,
					c.Kind, *r.Text)
			}
			require.Equal(t, r.Decoded, tok.Decode(r.IDs), "case %d %s %v", i, c.Kind, r.IDs)
		}
	}
}
