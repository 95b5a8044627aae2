package remote

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
)

// packedWeights can be written in a layout.
type packedWeights struct{ fakeWeights }

func (packedWeights) Layout() string { return "panels" }

func (w packedWeights) WritePacked(m *checkpoint.MemoryFile) error {
	header := fmt.Sprintf(`{"packed":%q}`, w.Checksum())
	_, err := m.Write(binary.LittleEndian.AppendUint32([]byte(header), math.Float32bits(w.value)))
	return err
}

// A server gets weights in its in-memory layout if it accepts that, and as rows if it
// reports another layout, none, or refuses it.
func TestPublishPacked(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://127.0.0.1:8000", "http://fake:8000"} {
		for _, row := range []struct {
			layout           string
			rowsOnly, packed bool
		}{{"panels", false, true}, {"panels", true, false}, {"other", false, false}, {"", false, false}} {
			f := newFake(t, EasyRL)
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
			require.False(t, f.packed, "weights without a layout")
		}
	}
}
