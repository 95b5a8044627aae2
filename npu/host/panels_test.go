package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// Row r, column c of a matrix is lane r mod 32 of column c of panel r / 32.
func TestPanels(t *testing.T) {
	t.Parallel()
	for _, s := range []Shape{{1, 1}, {31, 3}, {32, 2}, {33, 5}, {100, 7}} {
		vals := make([]float32, s.Values())
		for i := range vals {
			vals[i] = float32(i + 1)
		}
		packed := s.Pack(nil, vals)
		require.Len(t, packed, s.Panels()*s.PanelLen())
		require.Equal(t, []int{s.Panels(), s.Cols, npu.MatrixBlock}, s.PanelShape())
		for r := range s.Panels() * npu.MatrixBlock {
			for c := range s.Cols {
				want := float32(0)
				if r < s.Rows {
					want = vals[r*s.Cols+c]
				}
				require.Equal(t, want, packed[(r/npu.MatrixBlock*s.Cols+c)*npu.MatrixBlock+r%npu.MatrixBlock],
					"%v: row %d, column %d", s, r, c)
			}
		}
		require.Equal(t, vals, s.Unpack(packed))
		require.NoError(t, s.CheckPadding(packed))
		if s.Rows%npu.MatrixBlock != 0 {
			packed[len(packed)-1] = 2
			require.EqualError(t, s.CheckPadding(packed), "padding after the last row is 2, expected 0")
		}
	}
	vector := []float32{3, 1, 2}
	require.Equal(t, vector, Shape{Rows: 3}.Pack(nil, vector))
	require.Equal(t, vector, Shape{Rows: 3}.Unpack(vector))
	require.NoError(t, Shape{Rows: 3}.CheckPadding(vector))
}

// A part begins at a whole panel and ends with the matrix.
func TestPart(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 70, Cols: 4}
	require.Equal(t, 3, s.Panels())
	require.Equal(t, Shape{64, 4}, s.Part(0, 2))
	require.Equal(t, Shape{6, 4}, s.Part(2, 1))
	require.Equal(t, 2, s.PanelAt(2*s.PanelLen()))
	require.Equal(t, 2*s.PanelLen(), s.Block(3*s.PanelLen()-1))
	require.Equal(t, s.PanelLen(), s.Block(1), "one panel at least")
}
