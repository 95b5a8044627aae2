package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// Row r, column c of a matrix is at lane r mod 32 of column c of panel r / 32.
func TestPanels(t *testing.T) {
	t.Parallel()
	for _, s := range []Shape{{1, 1}, {31, 3}, {32, 2}, {33, 5}, {100, 7}} {
		vals := make([]float32, s.Values())
		for i := range vals {
			vals[i] = float32(i + 1)
		}
		laid := s.Lay(nil, vals)
		require.Len(t, laid, s.Count()*s.Len())
		require.Equal(t, []int{s.Count(), s.Cols, npu.MatrixBlock}, s.Packed())
		for r := range s.Count() * npu.MatrixBlock {
			for c := range s.Cols {
				want := float32(0)
				if r < s.Rows {
					want = vals[r*s.Cols+c]
				}
				require.Equal(t, want, laid[(r/npu.MatrixBlock*s.Cols+c)*npu.MatrixBlock+r%npu.MatrixBlock], "%v: row %d, column %d", s, r, c)
			}
		}
		require.Equal(t, vals, s.Unlay(laid))
		require.NoError(t, s.CheckPadding(laid))
		if s.Rows%npu.MatrixBlock != 0 {
			laid[len(laid)-1] = 2
			require.EqualError(t, s.CheckPadding(laid), "2 beyond the last row, expected 0")
		}
	}
	vector := []float32{3, 1, 2}
	require.Equal(t, vector, Shape{Rows: 3}.Lay(nil, vector))
	require.Equal(t, vector, Shape{Rows: 3}.Unlay(vector))
	require.NoError(t, Shape{Rows: 3}.CheckPadding(vector))
}

// A part begins at a whole panel and ends with the matrix.
func TestPart(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 70, Cols: 4}
	require.Equal(t, 3, s.Count())
	require.Equal(t, Shape{64, 4}, s.Part(0, 2))
	require.Equal(t, Shape{6, 4}, s.Part(2, 1))
	require.Equal(t, 2, s.At(2*s.Len()))
	require.Equal(t, 2*s.Len(), s.Block(3*s.Len()-1))
	require.Equal(t, s.Len(), s.Block(1), "one panel at least")
}
