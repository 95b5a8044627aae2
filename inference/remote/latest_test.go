package remote

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/remote/internal/latest"
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
	l := latest.New()
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
		require.Equal(t, int32(2*version), writes.Load(), "once by the store and once here")
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
	require.Equal(t, published(t, other), string(got), "the version is the same, the weights are not")

	_, _, err = l.Put(t.Context(), brokenWeights{fakeWeights{13, 1}}, "")
	require.ErrorContains(t, err, "write weights: device lost")
	_, r, err = l.Put(t.Context(), other, "")
	require.NoError(t, err)
	got, err = io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, published(t, other), string(got), "what the broken ones left is gone")
}

// packedWeights can be written in a layout.
type packedWeights struct{ fakeWeights }

func (packedWeights) Layout() string { return "panels" }

func (w packedWeights) WritePacked(m *checkpoint.Memory) error {
	header := fmt.Sprintf(`{"packed":%q}`, w.Checksum())
	_, err := m.Write(binary.LittleEndian.AppendUint32([]byte(header), math.Float32bits(w.value)))
	return err
}

// A server is sent weights as they lie in memory where it takes that layout, and
// rows where it says another, none, or refuses it by now.
func TestPublishPacked(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://127.0.0.1:8000", "http://fake:8000"} {
		for _, row := range []struct {
			layout           string
			rowsOnly, packed bool
		}{{"panels", false, true}, {"panels", true, false}, {"other", false, false}, {"", false, false}} {
			f := newFake(t, Easyrl)
			f.layout, f.rowsOnly = row.layout, row.rowsOnly
			inst := f.dial(func(c *Config) { c.URL = url })
			for version := int64(1); version < 3; version++ {
				w := packedWeights{fakeWeights{version, float32(version)}}
				sum, err := inst.Publish(t.Context(), w)
				require.NoError(t, err)
				require.Equal(t, w.Checksum(), sum)
				require.Equal(t, w.value, f.value)
				require.Equal(t, row.packed, f.packed, "%s, %+v", url, row)
			}
			_, err := inst.Publish(t.Context(), fakeWeights{3, 5})
			require.NoError(t, err)
			require.False(t, f.packed, "weights that have no layout")
		}
	}
}

func published(t *testing.T, w interface{ WriteSafetensors(w io.Writer) error }) string {
	t.Helper()
	r, out := io.Pipe()
	go func() { _ = out.CloseWithError(w.WriteSafetensors(out)) }()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}
