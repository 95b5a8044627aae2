package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A check prints every value with its origin, and what it found, for either task.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	demos := write(t, dir, "demos.jsonl", `{"prompt":"1","response":"2"}`+"\n")
	args := []string{"check", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set", "eval.k=4"}
	before := files(t, dir)
	status, out, stderr := command(t, args...)
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	require.Contains(t, out, "k = 4                                    # -set\n")
	require.Contains(t, out, "\n# data: 23 usable in data.train; held out: prompts 23\n")
	require.Contains(t, out, "\n# device: cpu/")
	require.Contains(t, out, "\n# ok: easyrl train can start\n")
	status, out, stderr = command(t, append(args, "-sft", "-static", "-set", "sft.data="+demos)...)
	require.Zero(t, status, stderr)
	require.Contains(t, out, "\n# data: 1 usable in sft.data\n")
	require.Contains(t, out, "\n# ok: easyrl sft can read its files.")
	require.NotContains(t, out, "# device")
	require.Equal(t, before, files(t, dir), "nothing is left behind")
}

// Tied embeddings have two gradients, as many as untied ones:
// 2·31000·256 + 4·256² + 3·256·16 + 3·256 values of 4 bytes.
func TestCheckCountsTiedGradients(t *testing.T) {
	dir := tinyRun(t)
	for tied, weights := range map[bool]string{false: "weights 184.8 MiB", true: "weights 94.0 MiB"} {
		config := filepath.Join(dir, fmt.Sprint(tied, ".json"))
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `{"model_type":"llama","hidden_size":256,"intermediate_size":16,"num_hidden_layers":1,
			"num_attention_heads":1,"vocab_size":31000,"max_position_embeddings":64,"tie_word_embeddings":%v}`, tied), 0o644))
		status, out, stderr := command(t, "check", filepath.Join(dir, "run.toml"), "-set", "model.path=", "-set", fmt.Sprintf("model.init.config=%q", config))
		require.Zero(t, status, stderr)
		require.Contains(t, out, weights+", gradients 61.6 MiB")
	}
}

// The total is the sum of the parts, including each instance's cache.
func TestCheckCountsInstances(t *testing.T) {
	dir := tinyRun(t)
	config := filepath.Join(dir, "big.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"model_type":"qwen2","hidden_size":512,"intermediate_size":1024,"num_hidden_layers":8,
		"num_attention_heads":8,"num_key_value_heads":8,"vocab_size":4000,"max_position_embeddings":4096,"tie_word_embeddings":true}`), 0o644))
	mebibytes := func(instances int) (kv, activations, all float64) {
		status, out, stderr := command(t, "check", filepath.Join(dir, "run.toml"), "-set", "model.path=", "-set", fmt.Sprintf("model.init.config=%q", config),
			"-set", fmt.Sprint("inference.instances=", instances), "-set", "data.max_prompt_tokens=1000", "-set", "rollout.max_tokens=24",
			"-set", "inference.max_running=16")
		require.Zero(t, status, stderr)
		find := func(pattern string) float64 {
			m := regexp.MustCompile(pattern).FindStringSubmatch(out)
			require.NotNil(t, m, "%s in %s", pattern, out)
			v, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			if m[2] == "GiB" {
				v *= 1024
			}
			return v
		}
		return find(`instances \(estimated\): kv ([0-9.]+) (.iB) \(1024 pages\)`), find(`instances \(estimated\): .* activations up to ([0-9.]+) (.iB) \(1024 rows\)`),
			find(`memory in total \(estimated\): ([0-9.]+) (.iB)`)
	}
	kv, activations, one := mebibytes(1)
	require.InDelta(t, 2*8*1024*16*512*4/(1<<20), kv, 0.05, "keys and values of 8 layers, 1024 pages of 16 positions, 512 values of 4 bytes")
	require.Positive(t, activations)
	_, _, three := mebibytes(3)
	require.InDelta(t, 2*(kv+activations), three-one, 110, "shown to a tenth of a GiB")
}
