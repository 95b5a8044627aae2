package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// rowsTwin has a device of BF16 and its twin of FP32.
type rowsTwin struct {
	t    *testing.T
	bf16 npu.Device
	fp32 npu.Device
}

// twins runs a test on all instruction sets, with devices of one thread and of three.
func twins(t *testing.T, test func(d rowsTwin, r *rand.Rand)) {
	for _, isa := range cpu.ISAs() {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", isa, threads), func(t *testing.T) {
				t.Parallel()
				in := func(numerics npu.Numerics) npu.Device {
					return open(t, func(n int) (npu.Device, error) { return cpu.OpenISA(isa, numerics, n) }, threads)
				}
				test(rowsTwin{t, in(npu.BF16), in(npu.FP32)}, rand.New(rand.NewPCG(7, uint64(threads))))
			})
		}
	}
}

// require runs a kernel on both devices. Inputs are bfloat16 values. If residual is set, input 0 and all results
// are float32.
func (d rowsTwin) require(what string, residual bool, inputs [][]float32, results []int,
	kernel func(d npu.Device, in, out []npu.Buffer)) {
	d.t.Helper()
	run := func(dev npu.Device) []npu.Buffer {
		var in, out []npu.Buffer
		dtype := dev.Info().Numerics.Type()
		for i, x := range inputs {
			if residual && i == 0 {
				in = append(in, values(d.t, dev, npu.Float32, x))
			} else {
				in = append(in, values(d.t, dev, dtype, x))
			}
		}
		for _, n := range results {
			if residual {
				out = append(out, values(d.t, dev, npu.Float32, make([]float32, n)))
			} else {
				out = append(out, values(d.t, dev, dtype, make([]float32, n)))
			}
		}
		kernel(dev, in, out)
		require.NoError(d.t, dev.Sync())
		return append(in, out...)
	}
	got, want := run(d.bf16), run(d.fp32)
	for i := range got {
		output{got[i], d.t}.require(want[i].Float32s(), fmt.Sprintf("%s: operand %d", what, i))
	}
}

func TestPointwiseBF16(t *testing.T) {
	t.Parallel()
	twins(t, func(d rowsTwin, r *rand.Rand) {
		for range 40 {
			n := 1 + r.IntN(10000)
			x, y, z := draw(r, n, false), draw(r, n, false), draw(r, n, false)
			d.require("swiglu", false, [][]float32{x, y}, []int{n}, func(d npu.Device, in, out []npu.Buffer) {
				d.SwiGLU(out[0], in[0], in[1])
			})
			d.require("swiglu backward", false, [][]float32{x, y, z}, []int{n, n}, func(d npu.Device, in, out []npu.Buffer) {
				d.SwiGLUBackward(out[0], out[1], in[0], in[1], in[2])
			})
			rows, heads, dim := 1+r.IntN(40), 1+r.IntN(4), 2*(1+r.IntN(70))
			positions := make([]int32, rows)
			for i := range positions {
				positions[i] = r.Int32N(50)
			}
			table := make([]float32, 50*dim)
			for i := range table {
				table[i] = float32(r.NormFloat64())
			}
			d.require("rope", false, [][]float32{draw(r, rows*heads*dim, false)}, nil, func(dev npu.Device, in, _ []npu.Buffer) {
				angles, inverse := values(d.t, dev, npu.Float32, table), dim%4 == 0
				var at npu.Ints
				batch(d.t, dev, rows, func(a *npu.Batch) { at = a.Ints(positions) })
				dev.Rope(in[0], angles, at, heads, dim, inverse)
			})
		}
	})
}

func TestNormBF16(t *testing.T) {
	t.Parallel()
	const eps = 1e-5
	twins(t, func(d rowsTwin, r *rand.Rand) {
		for i := range 60 {
			n, heads, residual, finite := 1+r.IntN(200), 1+r.IntN(3), i%2 == 0, i%3 > 0
			var ends []int32
			rows := 0
			for range 1 + r.IntN(3) {
				rows += 1 + r.IntN(300)
				ends = append(ends, int32(rows))
			}
			size := rows * heads * n
			x, dy, w, dx := draw(r, size, finite), draw(r, size, finite), draw(r, n, finite), draw(r, size, finite)
			what := fmt.Sprintf("norm of %d heads of %d, float32 %v, leaves %v", heads, n, residual, ends)
			d.require(what, residual, [][]float32{x, w, dy}, nil, func(d npu.Device, in, _ []npu.Buffer) {
				d.RMSNorm(in[2], in[0], in[1], rows*heads, eps)
			})
			// dWeight is the same on both devices.
			sumsOf := map[npu.Device]npu.Sums{d.bf16: sums(d.t, d.bf16, n), d.fp32: sums(d.t, d.fp32, n)}
			d.require(what+", backward", residual, [][]float32{x, dy, w}, []int{size, size}, func(dev npu.Device, in, out []npu.Buffer) {
				to := values(d.t, dev, in[0].DType(), dx)
				format := npu.FixedPoint{Scale: 1 << 30, Limit: 1 << 60}
				var l npu.Leaves
				batch(d.t, dev, len(ends)+npu.MaxUnits(len(ends), rows), func(a *npu.Batch) { l = a.Leaves(format, ends, rows) })
				dev.RMSNormBackward(out[0], sumsOf[dev], in[1], in[0], in[2], heads, eps, false, &l)
				dev.RMSNormBackward(to, sumsOf[dev], in[1], in[0], in[2], heads, eps, true, &l)
				dev.Copy(out[1], to)
			})
			require.Equal(d.t, sumsOf[d.fp32].Int64s(), sumsOf[d.bf16].Int64s(), what)
			require.Equal(d.t, sumsOf[d.fp32].Mark.Int64s(), sumsOf[d.bf16].Mark.Int64s(), what)
		}
	})
}
