package arch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
)

// foreign writes a model folder with a config.json and 20 parameters.
func foreign(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644))
	require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), []checkpoint.Source{
		{Name: "a", Shape: []int{4, 4}, Write: checkpoint.Filled(func([]float32) {})},
		{Name: "b", Shape: []int{4}, Write: checkpoint.Filled(func([]float32) {})}}, nil))
	return dir
}

func TestReadForeign(t *testing.T) {
	t.Parallel()
	dir := foreign(t,
		`{"model_type":"gemma3","eos_token_id":[1,7],"text_config":{"model_type":"gemma3_text","hidden_size":8,
		"num_hidden_layers":3,"vocab_size":40,"max_position_embeddings":99,"bos_token_id":2}}`)
	_, err := ReadConfig(dir)
	require.Error(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id":9}`), 0o644))
	c, parameters, err := ReadForeign(dir)
	require.NoError(t, err)
	require.EqualValues(t, 20, parameters)
	require.Equal(t, &Config{Type: "gemma3", HiddenSize: 8, Layers: 3, VocabSize: 40, MaxPositions: 99,
		StopIDs: []int32{1, 7, 9}, BOS: 2}, c)

	c, _, err = ReadForeign(foreign(t, `{"model_type":"x","hidden_size":8,"num_hidden_layers":3,"vocab_size":40}`))
	require.NoError(t, err)
	require.Equal(t, foreignPositions, c.MaxPositions)
	require.EqualValues(t, -1, c.BOS)
}

func TestReadForeignRefuses(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"hidden_size":8,"num_hidden_layers":3}`: "vocab_size is 0, expected 1 to",
		`{"hidden_size":8,"num_hidden_layers":3,"vocab_size":9,"eos_token_id":9}`: "eos_token_id 9 is outside " +
			"the vocabulary of 9",
		`{"hidden_size":8,"num_hidden_layers":-1,"vocab_size":9}`:                    "num_hidden_layers is -1",
		`{"hidden_size":8,"num_hidden_layers":1,"vocab_size":9,"text_config":[1,2]}`: "config.json",
		`[`: "config.json",
	} {
		_, _, err := ReadForeign(foreign(t, config))
		require.ErrorContains(t, err, want, config)
	}
}
