package golden

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// Each rope scaling field changes the log-probabilities by far more than the
// tolerance of 1e-4.
func TestScalingFieldsMatter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ folder, old, replacement string }{
		{"llama-old-yarn", `"truncate": false`, `"truncate": true`},
		{"llama-old-yarn", `"mscale": 0.7`, `"mscale": 0.4`},
		{"llama-old-yarn", `"mscale_all_dim": 0.4`, `"attention_factor": 1.3`},
		{"llama-old-yarn", `"beta_fast": 8`, `"beta_fast": 3`},
		{"llama-old-yarn", `"beta_slow": 0.5`, `"beta_slow": 1`},
		{"llama-old-yarn", `"rope_theta": 500.0`, `"rope_theta": 10000.0`},
		{"llama-old-yarn", `"original_max_position_embeddings": 128`, `"original_max_position_embeddings": 64`},
		{"qwen2-yarn-of-lengths", `"factor": null`, `"factor": 4`},
		{"qwen2-yarn-of-lengths", `"rope_theta": 2000.0`, `"rope_theta": 10000.0`},
		{"qwen3-old-dynamic", `"rope_theta": 3000.0`, `"rope_theta": 10000.0`},
		{"qwen3-yarn", `"attention_factor": 1.3`, `"attention_factor": null`},
		{"llama-linear", `"factor": 3.0`, `"factor": 2.0`},
		{"llama-llama3", `"high_freq_factor": 4.0`, `"high_freq_factor": 8.0`},
		{"llama-llama3", `"low_freq_factor": 1.0`, `"low_freq_factor": 0.5`},
		{"qwen3", `"rms_norm_eps": 1e-06`, `"rms_norm_eps": 1e-02`},
	} {
		t.Run(c.folder+" "+c.replacement, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", c.folder)
			config, err := os.ReadFile(filepath.Join(dir, "config.json"))
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(config), c.old))
			b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			require.NoError(t, err)
			var want golden
			require.NoError(t, json.Unmarshal(b, &want))
			got := logprobs(t, dir, strings.Replace(string(config), c.old, c.replacement, 1), want.IDs)
			worst := 0.0
			for i, lp := range got {
				worst = max(worst, math.Abs(float64(lp)-want.Logprobs[i]))
			}
			require.Greater(t, worst, 1e-3)
		})
	}
}

// logprobs runs the weights of a folder under another configuration.
func logprobs(t *testing.T, dir, config string, ids []int32) []float32 {
	t.Helper()
	shape, err := arch.ParseConfig([]byte(config))
	require.NoError(t, err)
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	defer dev.Close()
	w, err := model.NewWeights(dev, shape, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Load(dir))
	tape := model.NewTape(dev, shape)
	defer tape.Close()
	var l attention.Layout
	l.Add(-1, ids, true)
	got := make([]float32, len(ids)-1)
	require.NoError(t, tape.Forward(w, &l, 1, false, got, make([]float32, len(got))))
	require.NoError(t, tape.Wait())
	return got
}
