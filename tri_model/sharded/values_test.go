package sharded

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// openApart connects the trainer to all ranks but rank 0 as if they ran in other processes.
func openApart(t *testing.T, c *model.Config, cfg Config) *Models {
	t.Helper()
	var devices []npu.Device
	for range cfg.Mesh.Size() {
		devices = append(devices, openCPU(t, 1))
	}
	var followers conc.WaitGroup
	t.Cleanup(followers.Wait) // before the devices are closed
	ends := parallel.NewLocal(cfg.Mesh.Size())
	for i, end := range ends[1:] {
		// failures reach rank 0
		followers.Go(func() { _ = Follow(context.WithoutCancel(t.Context()), devices[i+1], end, trace.Track{}) })
	}
	m, err := New(t.Context(), devices[0], c, drawn(c), cfg, []parallel.Transport{ends[0]}, 1)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// take takes a step on what a version has sampled.
func take(t *testing.T, m backend.Models, c *model.Config, step int, sampler int64) {
	t.Helper()
	for _, l := range layouts(c, uint64(step), 5) {
		require.NoError(t, m.Pass(t.Context(), l, sampler, half))
	}
	require.NoError(t, m.Flush(t.Context()))
	_, err := m.Step(t.Context(), backend.Update{Number: step, Scale: 1.0 / 64, LR: 1e-3})
	require.NoError(t, err)
}

// fileOf returns the file of published weights.
func fileOf(t *testing.T, w interface{ WriteSafetensors(io.Writer) error }) []byte {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, w.WriteSafetensors(&text))
	return text.Bytes()
}

// A version has the file of one rank's version, and can be read while later ones are trained, also
// by several readers, until the second publish after it.
func TestVersionsAreReadBesideTraining(t *testing.T) {
	t.Parallel()
	for name, opened := range map[string]func(*testing.T, *model.Config, Config) *Models{
		"one process": func(t *testing.T, c *model.Config, cfg Config) *Models { return open(t, c, cfg) },
		"processes":   openApart,
	} {
		for shape, c := range shapes() {
			t.Run(name+"/"+shape, func(t *testing.T) {
				t.Parallel()
				dev := openCPU(t, 1)
				one, err := trimodel.New(dev, start(t, dev, c), config())
				require.NoError(t, err)
				defer one.Close()
				m := opened(t, c, Config{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}, Models: config(), Zero: 1,
					Sequence: true})
				require.Equal(t, one.Policy.Weights.Checksum(), m.StartChecksum())
				var files [][]byte
				for step := 1; step <= 3; step++ {
					want, err := one.Publish(t.Context(), int64(step))
					require.NoError(t, err)
					files = append(files, fileOf(t, want))
					got, err := m.Publish(t.Context(), int64(step))
					require.NoError(t, err)
					require.Equal(t, want.Checksum(), got.Checksum())
					require.Equal(t, want.Version(), got.Version())
					size, err := got.(publish.Sized).Size()
					require.NoError(t, err)
					require.Len(t, files[step-1], int(size))
					var readers conc.WaitGroup
					for range 3 {
						readers.Go(func() {
							for range 4 {
								if !bytes.Equal(files[step-1], fileOf(t, got)) {
									t.Errorf("version %d differs from one rank's", step)
								}
							}
						})
					}
					take(t, m, c, step, int64(step))
					readers.Wait()
					take(t, one, c, step, int64(step))
					if step == 3 {
						break
					}
					_, err = m.Publish(t.Context(), int64(step)+100)
					require.NoError(t, err)
					require.Equal(t, files[step-1], fileOf(t, got), "the version before the last one")
					_, err = m.Publish(t.Context(), int64(step)+200)
					require.NoError(t, err)
					require.ErrorContains(t, got.WriteSafetensors(io.Discard), "is no longer published")
				}
			})
		}
	}
}

// A checkpoint has the values at its capture, although training goes on while it is written, and its
// copies are freed after that.
func TestCheckpointIsWrittenBesideTraining(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen2"]
	for _, opened := range []func(*testing.T, *model.Config,
		Config) *Models{func(t *testing.T, c *model.Config, cfg Config) *Models { return open(t, c, cfg) }, openApart} {
		m := opened(t, c, Config{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}, Models: config(), Zero: 2})
		_, err := m.Publish(t.Context(), 1)
		require.NoError(t, err)
		take(t, m, c, 1, 1)
		write, err := m.Capture(t.Context(), 1)
		require.NoError(t, err)
		want := t.TempDir()
		require.NoError(t, write(want))
		require.ErrorContains(t, write(t.TempDir()), "the copy for a checkpoint is gone")
		for range 20 { // the copies of the last one are freed beside the next one's
			write, err := m.Capture(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, write(t.TempDir()))
		}

		write, err = m.Capture(t.Context(), 1)
		require.NoError(t, err)
		took := t.TempDir()
		var writing conc.WaitGroup
		writing.Go(func() {
			if err := write(took); err != nil {
				t.Error(err)
			}
		})
		take(t, m, c, 2, 1)
		writing.Wait()
		require.Equal(t, hashOf(t, want), hashOf(t, took))
	}
}

// Servers are verified with the ranks' log-probabilities at temperature 1, under each version and under
// perturbed weights.
func TestCanary(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	prompt := []int32{5, 6, 7, 8, 9, 10, 11}
	dev := openCPU(t, 1)
	w := start(t, dev, c)
	compute := func(file []byte, ids []int32) []float32 {
		_, err := w.ReadStream(bytes.NewReader(file), int64(len(file)))
		require.NoError(t, err)
		tape := model.NewTape(dev, c)
		defer tape.Close()
		var l attention.Layout
		l.Add(-1, ids, true)
		logp := make([]float32, len(l.Targets))
		require.NoError(t, tape.Forward(w, &l, 1, false, logp, make([]float32, len(logp))))
		require.NoError(t, tape.Wait())
		return append([]float32{0}, logp...)
	}
	for _, own := range []Config{{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}},
		{Mesh: parallel.Mesh{DP: 1, TP: 4, PP: 1}, Sequence: true}} {
		own.Models, own.Canary = config(), prompt
		m := openApart(t, c, own)
		canary := m.Canary().Canary()
		p, err := canary.Perturb(t.Context())
		require.NoError(t, err)
		require.Equal(t, compute(fileOf(t, p), p.Prompt), p.Logprobs)
		require.NotEqual(t, m.StartChecksum(), p.Checksum())
		for version := 1; version <= 2; version++ {
			published, err := m.Publish(t.Context(), int64(version))
			require.NoError(t, err)
			got, err := canary.Logprobs(t.Context(), int64(version))
			require.NoError(t, err)
			require.Equal(t, compute(fileOf(t, published), prompt), got)
			take(t, m, c, version, int64(version))
		}
	}
}

// BenchmarkPublish publishes 25 M parameters and reads them as for a server.
func BenchmarkPublish(b *testing.B) {
	c := medium()
	c.Layers, c.VocabSize = 24, 4096
	for _, mesh := range []parallel.Mesh{{DP: 1, TP: 2, PP: 1}, {DP: 1, TP: 2, PP: 2}} {
		for name, whole := range map[string]bool{"whole": true, "parts": false} {
			b.Run(mesh.String()+"/"+name, func(b *testing.B) {
				m := open(b, c, Config{Mesh: mesh, Models: config(), Whole: whole})
				b.SetBytes(4 * c.NumParams())
				version := int64(0)
				for b.Loop() {
					version++
					_, err := m.Publish(b.Context(), version)
					require.NoError(b, err)
				}
			})
		}
	}
}
