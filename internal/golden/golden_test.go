// Package golden compares the model with other frameworks. make.py generates
// testdata with PyTorch transformers.
package golden

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

type golden struct {
	IDs         []int32   `json:"ids"`
	Logprobs    []float64 `json:"logprobs"`
	LR          float64   `json:"lr"`
	Beta1       float64   `json:"beta1"`
	Beta2       float64   `json:"beta2"`
	Eps         float64   `json:"eps"`
	WeightDecay float64   `json:"weight_decay"`
}

// TestTransformers compares log-probabilities and one AdamW step of random Llama,
// Mistral, Qwen2 and Qwen3 decoders with PyTorch transformers, which wrote their
// folders. The decoders cover grouped heads, tied and untied embeddings, biases,
// QK norm and every kind of rope scaling.
func TestTransformers(t *testing.T) {
	folders, err := filepath.Glob("testdata/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, path := range folders {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			require.NoError(t, err)
			var want golden
			require.NoError(t, json.Unmarshal(b, &want))
			dev, err := cpu.Open(npu.FP32, 1)
			require.NoError(t, err)
			defer dev.Close()
			shape, err := arch.ReadConfig(dir)
			require.NoError(t, err)
			w, err := model.NewWeights(dev, shape, npu.Weights)
			require.NoError(t, err)
			require.NoError(t, w.Load(dir))
			before := values(w)
			cfg := optim.Default()
			require.Equal(t, []float64{optim.Beta1, optim.Eps}, []float64{want.Beta1, want.Eps}, "AdamW's constants")
			cfg.Beta2, cfg.WeightDecay = want.Beta2, want.WeightDecay
			m, err := trimodel.New(dev, w,
				trimodel.Config{Temperature: 1, Optim: cfg, Format: optim.FixedPoint(1000, 100)})
			require.NoError(t, err)
			defer m.Close()

			var l attention.Layout
			l.AddResponse(l.Add(-1, want.IDs[:1], false), want.IDs[1:])
			got, err := m.Forward(&l, 0)
			require.NoError(t, err)
			require.Len(t, got.Values[backend.Policy], len(want.Logprobs))
			grad := make([]float32, len(got.Values[backend.Policy]))
			for i, lp := range got.Values[backend.Policy] {
				require.InDelta(t, want.Logprobs[i], lp, 1e-4, "token %d", i)
				grad[i] = -1
			}
			require.NoError(t, m.Backward(backend.Values{backend.Policy: grad}))
			_, err = m.Step(t.Context(), backend.Update{Number: 1, Scale: 1 / float64(len(grad)), LR: want.LR})
			require.NoError(t, err)
			requireStep(t, w, before, filepath.Join(dir, "stepped.safetensors"))
		})
	}
}

func values(w *model.Weights) [][]float32 {
	out := make([][]float32, len(w.Params))
	for i := range w.Params {
		out[i] = make([]float32, w.Params[i].Rows*max(w.Params[i].Cols, 1))
		w.Read(i, out[i])
	}
	return out
}

// requireStep compares each tensor's update, relative to its norm.
func requireStep(t *testing.T, w *model.Weights, before [][]float32, path string) {
	t.Helper()
	f, err := checkpoint.OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	for i, after := range values(w) {
		tensor, ok := f.Tensor(w.Params[i].Name)
		require.True(t, ok, w.Params[i].Name)
		want := make([]float32, len(after))
		require.NoError(t, tensor.Float32s(want))
		var diff, norm float64
		for j := range after {
			diff += math.Pow(float64(after[j])-float64(want[j]), 2)
			norm += math.Pow(float64(want[j])-float64(before[i][j]), 2)
		}
		require.Positive(t, norm, w.Params[i].Name)
		require.LessOrEqual(t, math.Sqrt(diff/norm), 1e-3, w.Params[i].Name)
	}
}
