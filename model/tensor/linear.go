package tensor

import (
	"github.com/sourcegraph/conc/iter"
	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/npu"
)

// LinearKey returns the key of the coefficients of a step's linear sums.
func LinearKey(seed uint64, step int64) uint64 { return splitmix.At(seed, uint64(step)) }

// linearTask is the approximate number of values in a thread's task.
const linearTask = 1 << 15

// LinearSum returns the sum of coefficient times value over p, modulo 2^64. values are sums of gradients of p, in
// panels (see host.Shape).
//
// The coefficient of an element is the product of a random factor of its row and one of its column in the whole
// tensor; a vector has only rows. Factors follow from key, the tensor's name and the index. So the linear sums of the
// parts of a tensor add up to that of the whole, and those of leaves to that of their sum. Factors are odd, so that a
// change of one value always changes the sum, and other changes do with near certainty unless they are made for the
// key. LinearSum uses at most the given number of threads.
func (p *Param) LinearSum(key uint64, values []int64, threads int) uint64 {
	seed := splitmix.At(key, xxh3.HashString(p.Name))
	if p.Cols == 0 {
		var sum uint64
		for i, v := range values {
			sum += linearFactor(seed, p.Whole.Row+i) * uint64(v)
		}
		return sum
	}
	columns := make([]uint64, p.Cols)
	for i := range columns {
		columns[i] = linearFactor(splitmix.Mix(seed), p.Whole.Col+i)
	}
	shape := p.Shape()
	panels, run := shape.Panels(), shape.PanelLen()
	step := max(1, linearTask/run) // panels per task
	sums := make([]uint64, (panels+step-1)/step)
	iter.Iterator[uint64]{MaxGoroutines: threads}.ForEachIdx(sums, func(task int, sum *uint64) {
		for panel := task * step; panel < min((task+1)*step, panels); panel++ {
			var rows [npu.MatrixBlock]uint64 // 0 for padding
			first := panel * npu.MatrixBlock
			for i := range min(npu.MatrixBlock, p.Rows-first) {
				rows[i] = linearFactor(seed, p.Whole.Row+first+i)
			}
			*sum += linearPanel(&rows, columns, values[panel*run:][:run])
		}
	})
	var total uint64
	for _, sum := range sums {
		total += sum
	}
	return total
}

// linearFactor returns the factor of a row or a column.
func linearFactor(seed uint64, i int) uint64 { return splitmix.At(seed, uint64(i)) | 1 }

// linearPanel returns the linear sum of a panel, whose rows and columns have the given factors.
func linearPanel(rows *[npu.MatrixBlock]uint64, columns []uint64, values []int64) (sum uint64) {
	for _, factor := range columns {
		column := (*[npu.MatrixBlock]int64)(values)
		values = values[npu.MatrixBlock:]
		var a, b, c, d uint64 // independent sums, which the processor adds at the same time
		for i := 0; i < npu.MatrixBlock; i += 4 {
			a += rows[i] * uint64(column[i])
			b += rows[i+1] * uint64(column[i+1])
			c += rows[i+2] * uint64(column[i+2])
			d += rows[i+3] * uint64(column[i+3])
		}
		sum += factor * (a + b + c + d)
	}
	return sum
}
