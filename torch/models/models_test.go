package models

import (
	"bytes"
	"context"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
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
	"github.com/easyrl/easyrl/torch"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

const config = `{"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"hidden_size":24,"intermediate_size":40,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":29,` +
	`"max_position_embeddings":64,
"rms_norm_eps":1e-5,"rope_theta":1e4,"initializer_range":0.2,"hidden_act":"silu","tie_word_embeddings":true}`

// start writes a model folder and returns it with its weights.
func start(t *testing.T) (dir string, w *model.Weights, dev npu.Device) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644))
	shape, err := arch.ReadConfig(dir)
	require.NoError(t, err)
	dev, err = cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	w, err = model.NewWeights(dev, shape, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(1))
	require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), nil))
	return dir, w, dev
}

// open starts a session with one fake rank.
func open(t *testing.T, dir, shared string) *torch.Session {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s, err := torch.Open(t.Context(), torch.Config{Token: "secret", Model: dir, Dir: shared, Temperature: 0.7,
		Optimizer: wire.Optimizer{Beta1: optim.Beta1, Beta2: 0.99, Eps: optim.Eps},
		Say: func(_ string, args ...any) {
			ranks := &fake.Ranks{Token: "secret", World: 1, Dial: func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", args[1].(string))
			}}
			running.Go(func() { ranks.Run(ctx) })
		}})
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// step makes an update.
func step(t *testing.T, m *Models, number int) {
	t.Helper()
	var l attention.Layout
	l.AddResponse(l.Add(-1, []int32{3, 1, 4}, false), []int32{1, 5, 9})
	require.NoError(t, m.Pass(t.Context(), &l, m.current,
		func(lp backend.Outputs) (backend.Values, error) {
			return backend.Values{backend.Policy: {-1, -1, -1}}, nil
		}))
	require.NoError(t, m.Flush(t.Context()))
	_, err := m.Step(t.Context(), backend.Update{Number: number, Scale: 1, LR: 0.01})
	require.NoError(t, err)
}

// Versions of a known decoder are snapshots in this process, valid until the second Publish
// after them.
func TestPublishSnapshots(t *testing.T) {
	t.Parallel()
	dir, w, dev := start(t)
	sum := w.Checksum()
	m := New(open(t, dir, t.TempDir()), t.TempDir(), model.MinVersions, dev, w)
	defer m.Close()
	first, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, sum, first.(*model.Snapshot).Weights().Checksum())
	step(t, m, 1)
	second, err := m.Publish(t.Context(), 2)
	require.NoError(t, err)
	require.NotEqual(t, sum, second.Checksum())
	require.Equal(t, sum, first.(*model.Snapshot).Weights().Checksum())
	_, err = m.Recompute(t.Context(), &attention.Layout{}, 2)
	require.ErrorContains(t, err, "do not compute an instance's bits")
}

// Versions of a foreign decoder are files. Its canary has the ranks' log-probabilities under each
// version and under perturbed weights.
func TestCanaryOfForeignDecoder(t *testing.T) {
	t.Parallel()
	dir, w, dev := start(t)
	shape := w.Config
	m := New(open(t, dir, t.TempDir()), t.TempDir(), model.MinVersions, nil, nil)
	defer m.Close()
	prompt := []int32{5, 6, 7, 8, 9, 10}
	canary, err := m.NewCanary(t.Context(), dir, shape, prompt)
	require.NoError(t, err)

	compute := func(w *model.Weights, ids []int32) []float32 {
		tape := model.NewTape(dev, shape)
		defer tape.Close()
		var l attention.Layout
		l.Add(-1, ids, true)
		logp := make([]float32, len(l.Targets))
		require.NoError(t, tape.Forward(w, &l, 1, false, logp, make([]float32, len(logp))))
		require.NoError(t, tape.Wait())
		return append([]float32{0}, logp...)
	}
	p, err := canary.Canary().Perturb(t.Context())
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, p.WriteSafetensors(&text))
	before := w.Checksum()
	_, err = w.ReadStream(&text, int64(text.Len()))
	require.NoError(t, err)
	require.NotEqual(t, before, w.Checksum())
	require.Equal(t, compute(w, p.Prompt), p.Logprobs)
	for _, v := range w.Sources() {
		vals := make([]float32, checkpoint.Tensor{Shape: v.Shape}.Len())
		require.NoError(t, v.Write(vals))
		for _, x := range vals {
			require.Zero(t, math.Float32bits(x)&0xffff, "exact in bfloat16")
		}
	}

	var sums []string
	for version := int64(1); version <= 2; version++ {
		published, err := m.Publish(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, version, published.Version())
		sums = append(sums, published.Checksum())
		text.Reset()
		require.NoError(t, published.WriteSafetensors(&text))
		_, err = w.ReadStream(&text, int64(text.Len()))
		require.NoError(t, err)
		got, err := canary.Canary().Logprobs(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, compute(w, prompt), got)
		_, err = canary.Canary().Logprobs(t.Context(), version+1)
		require.ErrorContains(t, err, "no longer being published")
		step(t, m, int(version))
	}
	require.NotEqual(t, sums[0], sums[1])
	w.Free()
}

func TestChecksum(t *testing.T) {
	t.Parallel()
	dir, w, _ := start(t)
	one, err := Checksum(dir)
	require.NoError(t, err)
	again, err := Checksum(dir)
	require.NoError(t, err)
	require.Equal(t, one, again)
	require.NoError(t, w.Init(2))
	require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), nil))
	other, err := Checksum(dir)
	require.NoError(t, err)
	require.NotEqual(t, one, other)
	w.Free()
}
