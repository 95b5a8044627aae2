package simulate

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
)

// An update returns after its configured time. An update that differs from a
// trainer's format changes nothing.
func TestSimulatedUpdates(t *testing.T) {
	t.Parallel()
	file := func(names ...string) []byte {
		var b bytes.Buffer
		var tensors []checkpoint.Source
		for _, name := range names {
			tensors = append(tensors, checkpoint.Source{Name: name, Shape: []int{70_000},
				Write: checkpoint.Filled(func(dst []float32) { dst[0] = float32(len(names)) })})
		}
		require.NoError(t, checkpoint.WriteSafetensors(&b, tensors, nil))
		return b.Bytes()
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := NewBackend("publish_seconds=5", "a", nil)
		require.NoError(t, err)
		version, sum := s.Held()
		require.Zero(t, version)
		require.Equal(t, "simulated", sum)
		good := file("a", "b")
		start := time.Now()
		sum, err = s.Update(t.Context(), 3, bytes.NewReader(good), -1)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(start))
		version, held := s.Held()
		require.EqualValues(t, 3, version)
		require.Equal(t, sum, held)
		other, err := s.Update(t.Context(), 4, bytes.NewReader(file("a")), -1)
		require.NoError(t, err)
		require.NotEqual(t, sum, other)

		turned := bytes.Replace(bytes.Replace(bytes.Replace(good, []byte(`"a"`), []byte(`"x"`), 1), []byte(`"b"`),
			[]byte(`"a"`), 1), []byte(`"x"`), []byte(`"b"`), 1)
		header := `{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`
		half := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+"\x80\x3f\x00\x40"...)
		var full bytes.Buffer
		require.NoError(t, checkpoint.WriteSafetensors(&full,
			[]checkpoint.Source{{Name: "a", Shape: []int{2},
				Write: checkpoint.Filled(func(dst []float32) { dst[0], dst[1] = 1, 2 })}}, nil))
		// order and dtype of the data do not matter
		for _, pair := range [][2][]byte{{good, turned}, {full.Bytes(), half}} {
			want, err := s.Update(t.Context(), 4, bytes.NewReader(pair[0]), -1)
			require.NoError(t, err)
			got, err := s.Update(t.Context(), 4, bytes.NewReader(pair[1]), -1)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		odd := bytes.Replace(half, []byte("BF16"), []byte(" I16"), 1)
		odd = bytes.Replace(odd, []byte(`" I16"`), []byte(`"I16" `), 1)
		for name, bad := range map[string][]byte{"cut off": good[:len(good)-1], "longer": append(bytes.Clone(good), 0),
			"type": odd} {
			_, err := s.Update(t.Context(), 9, bytes.NewReader(bad), int64(len(bad)))
			require.ErrorIs(t, err, inference.ErrInvalid, name)
			version, _ := s.Held()
			require.EqualValues(t, 4, version, name)
		}
		require.NoError(t, s.Close())
	})
}
