package publish

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// fakeWeights is a safetensors file of one number, which determines all that a fake
// server samples.
type fakeWeights struct {
	version int64
	value   float32
}

func (w fakeWeights) Version() int64   { return w.version }
func (w fakeWeights) Checksum() string { return fmt.Sprintf("%016x", math.Float32bits(w.value)) }

func (w fakeWeights) WriteSafetensors(out io.Writer) error {
	header := fmt.Sprintf(
		`{"__metadata__":{"easyrl.checksum":%q},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, w.Checksum())
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = binary.LittleEndian.AppendUint32(append(data, header...), math.Float32bits(w.value))
	_, err := out.Write(data)
	return err
}

type brokenWeights struct{ fakeWeights }

func (brokenWeights) WriteSafetensors(w io.Writer) error {
	_, _ = w.Write([]byte("half"))
	return errors.New("device lost")
}

func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "v9-old"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".writing-v9-older"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644))
	s, err := NewStore(dir)
	require.NoError(t, err)
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	w := func(version int64) fakeWeights { return fakeWeights{version, float32(version)} }
	for version := int64(1); version <= 3; version++ {
		folder, err := s.Put(t.Context(), w(version))
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(folder, "model.safetensors"))
	}
	require.Equal(t, []string{"notes.txt", Label(w(2)), Label(w(3))}, names())
	before, err := os.Stat(filepath.Join(dir, Label(w(3)), "model.safetensors"))
	require.NoError(t, err)
	_, err = s.Put(t.Context(), w(3))
	require.NoError(t, err)
	after, err := os.Stat(filepath.Join(dir, Label(w(3)), "model.safetensors"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "each version is written once")

	_, err = s.Put(t.Context(), w(2))
	require.NoError(t, err)
	again, err := os.Stat(filepath.Join(dir, Label(w(3)), "model.safetensors"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, again), "two are kept in turns")

	_, err = s.Put(t.Context(), brokenWeights{w(4)})
	require.ErrorContains(t, err, "device lost")
	require.Equal(t, []string{"notes.txt", Label(w(2)), Label(w(3))}, names(), "a failed write leaves no files")
}

type fakeAdapter struct{ fakeWeights }

func (fakeAdapter) Config() []byte { return []byte(`{"r":8}`) }

// The folder of an adapter is PEFT's.
func TestStoreAdapter(t *testing.T) {
	t.Parallel()
	s, err := NewStore(t.TempDir())
	require.NoError(t, err)
	a := fakeAdapter{fakeWeights{1, 0.5}}
	for range 2 {
		folder, err := s.Put(t.Context(), a)
		require.NoError(t, err)
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Len(t, entries, 2)
		got, err := os.ReadFile(filepath.Join(folder, AdapterConfig))
		require.NoError(t, err)
		require.Equal(t, a.Config(), got)
		got, err = os.ReadFile(filepath.Join(folder, AdapterFile))
		require.NoError(t, err)
		require.Equal(t, published(t, a), string(got))
	}
}

// sees returns what a server answers.
func sees(logprobs []float32) Sampler {
	return func(context.Context, inference.Request, int) ([]inference.Completion, error) {
		return []inference.Completion{{PromptLogprobs: logprobs}}, nil
	}
}

// judged has a canary look at a server under perturbed weights and then under versions. off
// is the server's error, relative to the spread; lag is how many versions it is behind.
func judged(t *testing.T, off float32, versions [][]float32, lag int) error {
	c := &Canary{Prompt: make([]int32, len(versions[0])),
		Logprobs: func(_ context.Context, v int64) ([]float32, error) { return versions[v-1], nil }}
	wrong := func(logp []float32) []float32 {
		logp = slices.Clone(logp)
		for i := range logp {
			logp[i] += off * float32(1-i%2*2)
		}
		return logp
	}
	p := &Perturbed{Prompt: c.Prompt, Logprobs: []float32{0, -1, -3, -5, -7}}
	r, err := c.First(t.Context(), p, sees(wrong(p.Logprobs)))
	for v := range versions {
		if err == nil {
			r, err = c.Next(t.Context(), int64(v+1), r, sees(wrong(versions[max(0, v-lag)])))
		}
	}
	return err
}

func TestCanary(t *testing.T) {
	t.Parallel()
	versions := func(n int, step float32) [][]float32 {
		out := make([][]float32, n)
		for v := range out {
			moved := step * float32(v)
			out[v] = []float32{0, -1 + moved, -3 - moved, -5 - moved, -7 + moved}
		}
		return out
	}
	require.NoError(t, judged(t, 0, versions(9, 1e-3), 0))
	require.NoError(t, judged(t, 0.02, versions(9, 1e-3), 0))
	require.NoError(t, judged(t, 0.02, versions(20, 1e-3), 20), "not measurable yet")
	require.ErrorContains(t, judged(t, 0.02, versions(80, 1e-3), 80),
		"nearer to those of version 1 (0.02) than to those of version 62 (0.0")
	require.ErrorContains(t, judged(t, 1e-6, versions(80, 1e-3), 80),
		"nearer to those of version 1 (9.5e-07) than to those of version 2 (0.001)")
	require.ErrorContains(t, judged(t, 0.02, versions(2, 1), 1),
		"nearer to those of version 1 (0.02) than to those of version 2 (1)")
	require.ErrorContains(t, judged(t, 0.2, versions(1, 0), 0),
		"under perturbed weights, log-probabilities differ from the trainer's by 0.2, expected at most 0.1")
	nan := float32(math.NaN())
	require.ErrorIs(t, judged(t, nan, versions(1, 0), 0), ErrWeights)

	part := versions(3, 0.1) // a server that takes two of five changes
	r := &Record{noise: 1e-5, version: 2, trainer: part[1][1:]}
	c := &Canary{Prompt: make([]int32, 5), Logprobs: func(context.Context, int64) (
		[]float32, error) {
		return part[2], nil
	}}
	_, err := c.Next(t.Context(), 3, r, sees(append(slices.Clone(part[2][:4]), part[1][4])))
	require.ErrorContains(t, err, "part of an update did not arrive")
	for _, got := range [][]float32{{0, nan, nan, nan, nan}, {0, -1, -1, -1, -1}} {
		_, err = c.Next(t.Context(), 3, r, sees(got))
		require.ErrorIs(t, err, ErrWeights)
	}
}

// The first version is judged with the error under perturbed weights.
func TestFirstVersion(t *testing.T) {
	t.Parallel()
	trainer := []float32{0, -1, -0.5, -17, -0.1, -2}
	next := func(noise float64, server ...float32) error {
		c := &Canary{Prompt: make([]int32, len(trainer)),
			Logprobs: func(context.Context, int64) ([]float32, error) { return trainer, nil }}
		_, err := c.Next(t.Context(), 1, &Record{noise: noise}, sees(server))
		return err
	}
	require.NoError(t, next(0.03, 0, -1.01, -0.49, -16, -0.11, -2.02),
		"the largest difference is 1 but the median passes")
	require.ErrorContains(t, next(0.03, 0, -1.06, -0.56, -17, -0.16, -2.06),
		"differ from the trainer's by 0.06 in the median, expected at most 0.05")
	require.ErrorContains(t, next(0.001, 0, -1.01, -0.49, -16, -0.11, -2.02),
		"differ from the trainer's by 0.45, expected at most 0.065")
	require.ErrorContains(t, next(0.01, trainer...),
		"under perturbed weights by 5e+03 times as much: an update does not reach every tensor")
	trainer = []float32{0, -2, -2, -2, -2, -2}
	require.NoError(t, next(0.01, trainer...), "the policy ignores its input")
}

// counted counts its writes.
type counted struct {
	fakeWeights
	writes *atomic.Int32
}

func (c counted) WriteSafetensors(w io.Writer) error {
	c.writes.Add(1)
	return c.fakeWeights.WriteSafetensors(w)
}

// Each version is written once, whatever the number of instances, over the previous one.
// A failed write is repeated.
func TestLatest(t *testing.T) {
	t.Parallel()
	l := NewLatest()
	var writes atomic.Int32
	for version := int64(1); version <= 12; version++ {
		w := counted{fakeWeights{version, float32(version)}, &writes}
		want := published(t, w)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				_, r, err := l.Put(t.Context(), w, "")
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r)
				if err != nil || string(got) != want {
					t.Errorf("version %d: %q, %v", version, got, err)
				}
			})
		}
		group.Wait()
		require.Equal(t, int32(2*version), writes.Load(), "once by Put and once by published")
		path, _, err := l.Put(t.Context(), w, "")
		require.NoError(t, err)
		require.Equal(t, runtime.GOOS == "linux", path != "")
		if path != "" {
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
	}
	other := counted{fakeWeights{12, 99}, &writes}
	_, r, err := l.Put(t.Context(), other, "")
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, published(t, other), string(got), "same version, other weights")

	_, _, err = l.Put(t.Context(), brokenWeights{fakeWeights{13, 1}}, "")
	require.ErrorContains(t, err, "write weights: device lost")
	_, r, err = l.Put(t.Context(), other, "")
	require.NoError(t, err)
	got, err = io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, published(t, other), string(got), "the failed write left no trace")
}

func published(t *testing.T, w interface{ WriteSafetensors(w io.Writer) error }) string {
	t.Helper()
	r, out := io.Pipe()
	go func() { _ = out.CloseWithError(w.WriteSafetensors(out)) }()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}
