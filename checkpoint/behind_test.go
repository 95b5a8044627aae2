package checkpoint

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is written behind comes in the order in which it was given, whatever its
// memory is used for next.
func TestBehind(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	b := WriteBehind(&got)
	var want []byte
	for i := range 100 {
		vals, err := b.Room(i % 7)
		require.NoError(t, err)
		for j := range vals {
			vals[j] = float32(i*10 + j)
			want = binary.LittleEndian.AppendUint32(want, math.Float32bits(vals[j]))
		}
		require.NoError(t, b.Write(vals))
	}
	require.NoError(t, b.Close())
	require.Equal(t, want, got.Bytes())
}

// A failure ends the work of whoever fills the blocks.
func TestBehindFails(t *testing.T) {
	t.Parallel()
	b := WriteBehind(failing{})
	require.NoError(t, b.Close(), "nothing was written")
	b = WriteBehind(failing{})
	var err error
	for err == nil {
		var vals []float32
		if vals, err = b.Room(3); err == nil {
			err = b.Write(vals)
		}
	}
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorIs(t, b.Close(), io.ErrClosedPipe)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A sum is of the bytes, low one first, however they are cut.
func TestSum(t *testing.T) {
	t.Parallel()
	s := NewSum()
	s.Add(nil)
	require.Equal(t, "ef46db3751d8e999", s.String(), "XXH64 of nothing")
	s.Add([]float32{1})
	s.Add([]float32{2, 3})
	whole := NewSum()
	whole.Add([]float32{1, 2, 3})
	require.Equal(t, whole.String(), s.String())
	raw := NewSum()
	raw.addBytes([]byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40})
	require.Equal(t, raw.String(), s.String())
}
