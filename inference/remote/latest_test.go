package remote

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// counted counts how often it is written.
type counted struct {
	fakeWeights
	writes *atomic.Int32
}

func (c counted) WriteSafetensors(w io.Writer) error {
	c.writes.Add(1)
	return c.fakeWeights.WriteSafetensors(w)
}

// Each version is written once, whatever the number of instances, in the room of
// the one before; one that could not be written is written again.
func TestLatest(t *testing.T) {
	t.Parallel()
	l := newLatest()
	var writes atomic.Int32
	for version := int64(1); version <= 12; version++ {
		w := counted{fakeWeights{version, float32(version)}, &writes}
		want := published(t, w)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				_, r, err := l.put(t.Context(), w)
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
		require.Equal(t, int32(2*version), writes.Load(), "once by the store and once here")
		path, _, err := l.put(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, runtime.GOOS == "linux", path != "")
		if path != "" {
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
	}
	other := counted{fakeWeights{12, 99}, &writes}
	_, r, err := l.put(t.Context(), other)
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, published(t, other), string(got), "the version is the same, the weights are not")

	_, _, err = l.put(t.Context(), brokenWeights{fakeWeights{13, 1}})
	require.ErrorContains(t, err, "write weights: device lost")
	_, r, err = l.put(t.Context(), other)
	require.NoError(t, err)
	got, err = io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, published(t, other), string(got), "what the broken ones left is gone")
}

func published(t *testing.T, w interface{ WriteSafetensors(w io.Writer) error }) string {
	t.Helper()
	r, out := io.Pipe()
	go func() { _ = out.CloseWithError(w.WriteSafetensors(out)) }()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}
