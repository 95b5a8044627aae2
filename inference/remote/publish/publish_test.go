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
	header := fmt.Sprintf(`{"__metadata__":{"easyrl.checksum":%q},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, w.Checksum())
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
	before, err := os.Stat(filepath.Join(dir, Label(w(3)), file))
	require.NoError(t, err)
	_, err = s.Put(t.Context(), w(3))
	require.NoError(t, err)
	after, err := os.Stat(filepath.Join(dir, Label(w(3)), file))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "each version is written once")

	_, err = s.Put(t.Context(), brokenWeights{w(4)})
	require.ErrorContains(t, err, "device lost")
	require.Equal(t, []string{"notes.txt", Label(w(2)), Label(w(3))}, names(), "a failed write leaves no files")
}

// A few tokens that lower precision gets wrong pass; a small difference in all of them
// does not.
func TestCanaryDistance(t *testing.T) {
	t.Parallel()
	trainer := []float32{0, -1, -0.5, -17, -0.1, -2}
	sees := func(server []float32) error {
		c := &Canary{Prompt: make([]int32, len(trainer)), Logprobs: func(context.Context, int64) ([]float32, error) { return trainer, nil }}
		_, err := c.Look(t.Context(), 1, nil, func(context.Context, inference.Request, int) ([]inference.Completion, error) {
			return []inference.Completion{{PromptLogprobs: server}}, nil
		})
		return err
	}
	require.NoError(t, sees([]float32{0, -1.01, -0.49, -14, -0.11, -2.02}), "the mean is 0.61 but the median passes")
	require.ErrorContains(t, sees([]float32{0, -1.06, -0.56, -17, -0.16, -2.06}), "differ from the trainer's by 0.06 in the median, expected at most 0.05")
	trainer[3] = float32(math.NaN())
	require.ErrorContains(t, sees(slices.Clone(trainer)), "the server has other weights")
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
