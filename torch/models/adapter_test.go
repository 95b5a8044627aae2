package models

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
)

// valuesOf returns the values of an adapter's tensors by name.
func valuesOf(t *testing.T, a publish.Adapter) map[string][]float32 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.safetensors")
	var text bytes.Buffer
	require.NoError(t, a.WriteSafetensors(&text))
	require.NoError(t, os.WriteFile(path, text.Bytes(), 0o644))
	f, err := checkpoint.OpenFile(path)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	out := map[string][]float32{}
	for _, name := range f.Names() {
		tensor, _ := f.Tensor(name)
		out[name] = make([]float32, tensor.Len())
		require.NoError(t, tensor.Float32s(out[name]))
	}
	return out
}

// Versions are adapters. A server is verified with the ranks' log-probabilities under each and
// under a perturbed adapter, whose product is as large as the weights of its layer.
func TestPublishAdapters(t *testing.T) {
	t.Parallel()
	dir, w, _ := start(t)
	w.Free()
	m := NewAdapters(open(t, dir, t.TempDir()), t.TempDir(), model.MinVersions)
	defer m.Close()
	prompt := []int32{5, 6, 7, 8, 9, 10}
	canary, err := m.NewCanary(t.Context(), dir, w.Config, prompt)
	require.NoError(t, err)
	p, err := canary.Canary().Perturb(t.Context())
	require.NoError(t, err)
	own, err := m.logprobs(t.Context(), p.Prompt, "")
	require.NoError(t, err)
	require.Positive(t, p.Limit)
	require.InEpsilon(t, publish.Distance(own, p.Logprobs)/8, p.Limit, 1e-9)
	perturbed := p.Weights.(publish.Adapter)
	require.JSONEq(t, `{"r":2,"lora_alpha":4}`, string(perturbed.Config()))
	values := valuesOf(t, perturbed)
	const name = "base_model.model.model.layers.0.self_attn.o_proj.lora_"
	a, b := values[name+"A.weight"], values[name+"B.weight"]
	require.Len(t, values, 2)
	square := 0.0
	rows, cols := len(b)/2, len(a)/2
	for i := range rows {
		for j := range cols {
			v := 2 * (b[2*i]*a[j] + b[2*i+1]*a[cols+j])
			square += float64(v) * float64(v)
		}
	}
	require.InEpsilon(t, 0.2, math.Sqrt(square/float64(rows*cols)), 0.5, "the model's initializer_range")
	for _, x := range append(a, b...) {
		require.Zero(t, math.Float32bits(x)&0xffff, "exact in bfloat16")
	}

	sums := map[string]bool{perturbed.Checksum(): true}
	for version := int64(1); version <= 2; version++ {
		published, err := m.Publish(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, version, published.Version())
		require.JSONEq(t, `{"r":2,"lora_alpha":4}`, string(published.(publish.Adapter).Config()))
		require.Len(t, valuesOf(t, published.(publish.Adapter)), 2)
		sums[published.Checksum()] = true
		want, err := m.logprobs(t.Context(), prompt, "")
		require.NoError(t, err)
		got, err := canary.Canary().Logprobs(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, want, got)
		step(t, m, int(version))
	}
	require.Len(t, sums, 3)
}

// Adapters with equal tensors and other descriptions differ.
func TestAdapterFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, publish.AdapterConfig)
	_, err := openAdapter(dir, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, publish.AdapterFile), []byte("tensors"), 0o644))
	_, err = openAdapter(dir, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	sums := map[string]bool{}
	for _, text := range []string{`{"r":8,"lora_alpha":16}`, `{"r":8,"lora_alpha":32}`} {
		require.NoError(t, os.WriteFile(config, []byte(text), 0o644))
		a, err := openAdapter(dir, 1)
		require.NoError(t, err)
		sums[a.Checksum()] = true
		scale, err := adapterScale(dir)
		require.NoError(t, err)
		require.Equal(t, len(sums)*2, int(scale))
	}
	require.Len(t, sums, 2)
	require.NoError(t, os.WriteFile(config, []byte(`{"r":0}`), 0o644))
	_, err = adapterScale(dir)
	require.ErrorContains(t, err, "r is 0 and lora_alpha 0, expected more than 0")
}
