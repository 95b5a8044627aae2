package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ids in testdata/golden.json are Hugging Face tokenizers' (version 0.23.3),
// written by testdata/python/golden.py.
func TestGolden(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var golden struct {
		Base  object
		Cases []struct {
			Name   string
			Change object
			Rows   []struct {
				Text        string
				IDs, Prompt []int32
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.NotEmpty(t, golden.Cases)
	for _, c := range golden.Cases {
		file := maps.Clone(golden.Base)
		maps.Copy(file, c.Change)
		tok, err := Load(write(t, object{"tokenizer.json": file}))
		require.NoError(t, err, c.Name)
		for _, r := range c.Rows {
			require.Equal(t, r.IDs, append([]int32{}, tok.mustEncode(r.Text)...), "%s %+q", c.Name, r.Text)
			if r.Prompt == nil {
				r.Prompt = r.IDs
			}
			require.Equal(t, r.Prompt, append([]int32{}, tok.mustEncodePrompt(r.Text)...), "%s %+q", c.Name, r.Text)
		}
	}
}
