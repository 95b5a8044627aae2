package nputest

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

type updateResult struct{ w, m, v []float32 }

func updateParams(step int) npu.AdamWParams {
	return npu.AdamWParams{
		LR: 3e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0x1p-32, Step: step,
	}
}

// updateOperands draws n weights and the sums of their gradient.
func updateOperands(n int, scale float64) (w []float32, g []int64) {
	r := rand.New(rand.NewPCG(uint64(n), 9))
	return normal(r, n, 1), randomSums(r, n, scale)
}

// randomSums draws n sums of the scale times 2^30, and sums whose conversion rounds twice
// or that are the largest.
func randomSums(r *rand.Rand, n int, scale float64) []int64 {
	x := make([]int64, n)
	for i := range x {
		x[i] = int64(r.NormFloat64() * 0x1p30 * scale)
	}
	if scale > 1 {
		for i, v := range []int64{math.MaxInt64, math.MinInt64, 1<<53 + 1, 1<<60 + 1<<36 + 1, -1<<60 - 1<<36 - 1, 1<<62 - 1} {
			if 7*i < n {
				x[7*i] = v
			}
		}
	}
	return x
}

// runAdamW makes steps updates with the same gradient.
func runAdamW(t *testing.T, d npu.Device, n, steps int, scale float64) updateResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	w0, g0 := updateOperands(n, scale)
	w, g := m.put(w0), m.putSums(g0)
	m1, m2 := m.put(make([]float32, n)), m.put(make([]float32, n))
	for step := range steps {
		d.AdamW(w, g, m1, m2, updateParams(step+1))
	}
	require.NoError(t, d.Sync())
	return updateResult{m.get(w), m.get(m1), m.get(m2)}
}

func updateLengths() []int { return []int{1, 15, 16, 33, 4096, 4097, 40000} }

// testUpdate checks the optimizer's kernels.
func testUpdate(t *testing.T, open func(threads int) (npu.Device, error)) {
	one, three := device(t, open, 1), device(t, open, 3)
	t.Run("adamw", func(t *testing.T) {
		for _, n := range updateLengths() {
			for _, steps := range []int{1, 4} {
				got := runAdamW(t, one, n, steps, 1)
				w0, g := updateOperands(n, 1)
				g0 := make([]float32, n)
				for i, v := range g {
					g0[i] = float32(v)
				}
				w, m, v := reference.AdamW[float64](w0, g0, updateParams(0), steps)
				nw, nm, nv := reference.AdamW[float32](w0, g0, updateParams(0), steps)
				near(t, "w", got.w, w, nw)
				near(t, "m", got.m, m, nm)
				near(t, "v", got.v, v, nv)
			}
		}
	})
	t.Run("zeros stay zero", func(t *testing.T) {
		m := newMemory(t, one)
		defer m.free()
		w, g, m1, m2 := m.put(make([]float32, 20)), m.sums(20), m.put(make([]float32, 20)), m.put(make([]float32, 20))
		one.AdamW(w, g, m1, m2, updateParams(1))
		require.Equal(t, make([]float32, 20), m.get(w))
	})
	t.Run("sum of squares", func(t *testing.T) {
		for _, n := range append(updateLengths(), 0) {
			m := newMemory(t, one)
			x := normal(rand.New(rand.NewPCG(uint64(n), 2)), n, 3)
			want := 0.0
			for _, v := range x {
				want += float64(v) * float64(v)
			}
			require.InDelta(t, want, one.SumSquares(m.put(x)), 1e-6*want, "%d values", n)
			m.free()
		}
	})
	t.Run("exact sum of squares", func(t *testing.T) { testSquares(t, one) })
	t.Run("threads", func(t *testing.T) { sameUpdate(t, one, three) })
}

// testSquares compares with arbitrary precision.
func testSquares(t *testing.T, d npu.Device) {
	sum, ok := d.SumSquaresExact(npu.Sums{})
	require.True(t, ok)
	require.Zero(t, sum)
	for _, n := range updateLengths() {
		for _, scale := range []float64{1, 1e-6, 1e9} {
			m := newMemory(t, d)
			_, g := updateOperands(n, scale)
			want := new(big.Int)
			for _, v := range g {
				x, _ := big.NewFloat(float64(float32(float64(v)))).Int(nil)
				want.Add(want, x.Mul(x, x))
			}
			s := m.putSums(g)
			sum, ok := d.SumSquaresExact(s)
			require.NoError(t, d.Sync())
			require.True(t, ok)
			got := new(big.Int)
			for i := range sum {
				got.Or(got, new(big.Int).Lsh(new(big.Int).SetUint64(sum[i]), uint(64*i)))
			}
			require.Equal(t, want.String(), got.String(), "%d values at %g", n, scale)
			d.Upload(s.Mark, []float32{0, 1})
			_, ok = d.SumSquaresExact(s)
			require.False(t, ok, "marked")
			m.free()
		}
	}
}

func sameUpdate(t *testing.T, want, got npu.Device) {
	for _, n := range updateLengths() {
		for _, scale := range []float64{1, 1e9, 1e-8, 0} {
			a, b := runAdamW(t, want, n, 3, scale), runAdamW(t, got, n, 3, scale)
			name := fmt.Sprintf("%d values at %g: ", n, scale)
			equal(t, name+"w", a.w, b.w)
			equal(t, name+"m", a.m, b.m)
			equal(t, name+"v", a.v, b.v)
			x := normal(rand.New(rand.NewPCG(uint64(n), 2)), n, scale)
			m1, m2 := newMemory(t, want), newMemory(t, got)
			require.Equal(t, want.SumSquares(m1.put(x)), got.SumSquares(m2.put(x)), name+"sum of squares")
			y1, y2 := m1.put(x), m2.put(x)
			want.Add(y1, m1.put(x[:n]))
			got.Add(y2, m2.put(x[:n]))
			equal(t, name+"sum", m1.get(y1), m2.get(y2))
			_, g := updateOperands(n, scale)
			wide, _ := want.SumSquaresExact(m1.putSums(g))
			again, _ := got.SumSquaresExact(m2.putSums(g))
			require.Equal(t, wide, again, name+"exact sum of squares")
			m1.free()
			m2.free()
		}
	}
}
