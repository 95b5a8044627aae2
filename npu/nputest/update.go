package nputest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

type updateResult struct{ w, m, v []float32 }

func updateParams(step int) npu.AdamWParams {
	return npu.AdamWParams{
		LR: 3e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.25, Step: step,
	}
}

// updateOperands draws n weights and their gradient.
func updateOperands(n int, scale float64) (w, g []float32) {
	r := rand.New(rand.NewPCG(uint64(n), 9))
	return normal(r, n, 1), normal(r, n, scale)
}

// runAdamW makes steps updates with the same gradient.
func runAdamW(t *testing.T, d npu.Device, n, steps int, scale float64) updateResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	w0, g0 := updateOperands(n, scale)
	w, g := m.put(w0), m.put(g0)
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
				w0, g0 := updateOperands(n, 1)
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
		w, g, m1, m2 := m.put(make([]float32, 20)), m.put(make([]float32, 20)), m.put(make([]float32, 20)), m.put(make([]float32, 20))
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
	t.Run("threads", func(t *testing.T) { sameUpdate(t, one, three) })
}

func sameUpdate(t *testing.T, want, got npu.Device) {
	for _, n := range updateLengths() {
		for _, scale := range []float64{1, 1e12, 1e-21, 1e-30} {
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
			m1.free()
			m2.free()
		}
	}
}
