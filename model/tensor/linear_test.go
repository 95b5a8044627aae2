package tensor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/npu"
)

// panels lays out row-major values as sums of gradients lie in memory.
func panels(rows, cols int, values []int64) []int64 {
	if cols == 0 {
		return values
	}
	out := make([]int64, (rows+npu.MatrixBlock-1)/npu.MatrixBlock*npu.MatrixBlock*cols)
	for r := range rows {
		for c := range cols {
			out[(r/npu.MatrixBlock*cols+c)*npu.MatrixBlock+r%npu.MatrixBlock] = values[r*cols+c]
		}
	}
	return out
}

func whole(name string, rows, cols int) Param {
	return Param{Name: name, Rows: rows, Cols: cols, Whole: Whole{Rows: rows, Cols: cols}}
}

// The factors of each row and column follow from the key, the name and the index, whatever the layout and the threads.
func TestLinearSum(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{1, 0}, {37, 0}, {1, 1}, {32, 3}, {33, 5}, {200, 700}} {
		rows, cols := shape[0], shape[1]
		p := whole("a", rows, cols)
		values := make([]int64, rows*max(cols, 1))
		var want uint64
		for i := range values {
			values[i] = int64(rng.Uint64())
			seed := splitmix.At(splitmix.At(7, 3), xxh3.HashString("a"))
			row, column := splitmix.At(seed, uint64(i))|1, uint64(1)
			if cols > 0 {
				row = splitmix.At(seed, uint64(i/cols)) | 1
				column = splitmix.At(splitmix.Mix(seed), uint64(i%cols)) | 1
			}
			want += row * column * uint64(values[i])
		}
		for _, threads := range []int{1, 3} {
			require.Equal(t, want, p.LinearSum(LinearKey(7, 3), panels(rows, cols, values), threads), "%v", shape)
		}
		require.NotEqual(t, want, p.LinearSum(LinearKey(7, 4), panels(rows, cols, values), 1))
		require.NotEqual(t, want, p.LinearSum(LinearKey(8, 3), panels(rows, cols, values), 1))
		p.Name = "b"
		require.NotEqual(t, want, p.LinearSum(LinearKey(7, 3), panels(rows, cols, values), 1))
	}
}

// The sums of parts, cut by rows or columns, add up to that of the whole tensor.
func TestLinearSumOfParts(t *testing.T) {
	t.Parallel()
	const rows, cols = 70, 9
	p := whole("a", rows, cols)
	values := make([]int64, rows*cols)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range values {
		values[i] = int64(rng.Uint64())
	}
	want := p.LinearSum(1, panels(rows, cols, values), 1)
	for _, cut := range []Whole{{Row: 32}, {Row: 41}, {Col: 4}} {
		var sum uint64
		for _, part := range []Param{
			{Name: "a", Rows: max(cut.Row, rows*min(cut.Col, 1)), Cols: max(cut.Col, cols*min(cut.Row, 1))},
			{Name: "a", Rows: rows - cut.Row, Cols: cols - cut.Col, Whole: cut},
		} {
			part.Whole.Rows, part.Whole.Cols = rows, cols
			var own []int64
			for r := range part.Rows {
				own = append(own, values[(part.Whole.Row+r)*cols+part.Whole.Col:][:part.Cols]...)
			}
			sum += part.LinearSum(1, panels(part.Rows, part.Cols, own), 2)
		}
		require.Equal(t, want, sum, "%+v", cut)
	}
}

func BenchmarkLinearSum(b *testing.B) {
	p := whole("a", 4096, 1024)
	values := make([]int64, p.Rows*p.Cols)
	b.SetBytes(int64(8 * len(values)))
	for b.Loop() {
		p.LinearSum(1, values, 1)
	}
}
