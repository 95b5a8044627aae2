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

// randomSums draws n sums with standard deviation scale·2^30. Above scale 1, it also puts in the extreme
// sums, and sums that a conversion to float32 through float64 rounds twice.
func randomSums(r *rand.Rand, n int, scale float64) []int64 {
	x := make([]int64, n)
	for i := range x {
		x[i] = int64(r.NormFloat64() * 0x1p30 * scale)
	}
	if scale > 1 {
		for i, v := range []int64{math.MaxInt64, math.MinInt64, 1<<53 + 1, 1<<60 + 1<<36 + 1,
			-1<<60 - 1<<36 - 1, 1<<62 - 1} {
			if 7*i < n {
				x[7*i] = v
			}
		}
	}
	return x
}

// updateCase is a tensor of n values.
type updateCase struct {
	n     int
	decay bool
}

func updateCases() (all []updateCase) {
	for _, n := range updateLengths() {
		all = append(all, updateCase{n, true}, updateCase{n, false})
	}
	return all
}

// runAdamW updates all tensors a number of times, each time with the same gradients.
func runAdamW(t *testing.T, d npu.Device, cases []updateCase, steps int, scale float64) []outputs {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	var updates []npu.Update
	for _, c := range cases {
		w, g := updateOperands(c.n, scale)
		u := npu.Update{
			W: m.put(w), G: m.putSums(g), M: m.zero(npu.Float32, c.n), V: m.zero(npu.Float32, c.n), Decay: c.decay,
		}
		if numerics(d) == npu.BF16 && c.decay { // weights without decay have no copy here
			u.Copy = m.nanValues(c.n)
		}
		updates = append(updates, u)
	}
	for step := range steps {
		d.AdamW(updates, updateParams(step+1))
	}
	var results []outputs
	for _, u := range updates {
		values := map[string][]float32{"w": m.get(u.W), "m": m.get(u.M), "v": m.get(u.V)}
		if !u.Copy.IsNil() {
			values["copy"] = m.get(u.Copy)
			equal(t, "copy of w", round(numerics(d), values["w"]), values["copy"])
		}
		results = append(results, outputs{values: values})
	}
	return results
}

func updateLengths() []int { return []int{1, 15, 16, 33, 4096, 4097, 40000} }

// testUpdate checks the optimizer's kernels.
func testUpdate(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("adamw", func(t *testing.T) {
		for _, steps := range []int{1, 4} {
			for i, got := range runAdamW(t, one, updateCases(), steps, 1) {
				c := updateCases()[i]
				w0, g := updateOperands(c.n, 1)
				g0 := make([]float32, c.n)
				for i, v := range g {
					g0[i] = float32(v)
				}
				p := updateParams(0)
				if !c.decay {
					p.WeightDecay = 0
				}
				w, m, v := reference.AdamW[float64](w0, g0, p, steps)
				nw, nm, nv := reference.AdamW[float32](w0, g0, p, steps)
				near(t, unitFloat32, "w", got.values["w"], w, nw)
				near(t, unitFloat32, "m", got.values["m"], m, nm)
				near(t, unitFloat32, "v", got.values["v"], v, nv)
			}
		}
	})
	t.Run("tensors apart", func(t *testing.T) {
		exactOnly(t, one)
		for i, want := range runAdamW(t, one, updateCases(), 2, 1) {
			alone := updateCases()[i : i+1]
			equalOutputs(t, fmt.Sprintf("%+v: ", alone[0]), want, runAdamW(t, one, alone, 2, 1)[0])
		}
	})
	t.Run("zeros stay zero", func(t *testing.T) {
		m := newMemory(t, one)
		defer m.free()
		zeros := func() npu.Buffer { return m.zero(npu.Float32, 20) }
		u := npu.Update{W: zeros(), G: m.sums(20), M: zeros(), V: zeros(), Decay: true}
		if numerics(one) == npu.BF16 {
			u.Copy = m.nanValues(20)
		}
		one.AdamW([]npu.Update{u}, updateParams(1))
		if numerics(one) == npu.BF16 {
			require.Equal(t, make([]float32, 20), m.get(u.Copy))
		}
		require.Equal(t, make([]float32, 20), m.get(u.W))
		one.AdamW(nil, updateParams(1))
	})
	t.Run("copy", func(t *testing.T) { testUpdateCopy(t, one) })
	t.Run("sum of squares", func(t *testing.T) { testSumSquares(t, one) })
	t.Run("exact sum of squares", func(t *testing.T) { testSquares(t, one) })
	t.Run("threads", func(t *testing.T) {
		sameUpdate(t, one, teams(t, open, 3))
	})
}

// testUpdateCopy requires the copy of weights that do not change to be rounded.
func testUpdateCopy(t *testing.T, d npu.Device) {
	if numerics(d) == npu.FP32 {
		t.Skip("weights have no copy")
	}
	m := newMemory(t, d)
	defer m.free()
	w := roundingEdges()
	n := len(w)
	u := npu.Update{W: m.put(w), Copy: m.nanValues(n), G: m.sums(n), M: m.zero(npu.Float32, n),
		V: m.zero(npu.Float32, n)}
	d.AdamW([]npu.Update{u}, npu.AdamWParams{LR: 0, Beta1: 0.9, Beta2: 0.9, Eps: 1, GradScale: 1, Step: 1})
	equal(t, "copy", round(npu.BF16, m.get(u.W)), m.get(u.Copy))
	for i, v := range m.get(u.W) {
		require.True(t, v == w[i] || v != v, "weight %d", i)
	}
}

// testSumSquares compares sums of squares with float64.
func testSumSquares(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	var x []npu.Buffer
	var want []float64
	for _, n := range append(updateLengths(), 0) {
		values, sum := normal(rand.New(rand.NewPCG(uint64(n), 2)), n, 3), 0.0
		for _, v := range values {
			sum += float64(v) * float64(v)
		}
		x, want = append(x, m.put(values)), append(want, sum)
	}
	got := make([]float64, len(x))
	require.NoError(t, d.SumSquares(got, x))
	for i, sum := range want {
		require.InDelta(t, sum, got[i], 1e-6*sum, "%d values", x[i].Len())
	}
	require.NoError(t, d.SumSquares(nil, nil))
}

// testSquares compares exact sums of squares with arbitrary precision. The last gradient has no values.
func testSquares(t *testing.T, d npu.Device) {
	for _, scale := range []float64{1, 1e-6, 1e9} {
		m := newMemory(t, d)
		var g []npu.Sums
		var want []string
		for _, n := range updateLengths() {
			_, values := updateOperands(n, scale)
			sum := new(big.Int)
			for _, v := range values {
				x, _ := big.NewFloat(float64(float32(float64(v)))).Int(nil)
				sum.Add(sum, x.Mul(x, x))
			}
			g, want = append(g, m.putSums(values)), append(want, sum.String())
		}
		g, want = append(g, npu.Sums{}), append(want, "0")
		got := make([]npu.Squares, len(g))
		require.NoError(t, d.SumSquaresExact(got, g))
		for i, s := range got {
			require.Zero(t, s.Worst)
			sum := new(big.Int)
			for word, v := range s.Sum {
				sum.Or(sum, new(big.Int).Lsh(new(big.Int).SetUint64(v), uint(64*word)))
			}
			require.Equal(t, want[i], sum.String(), "%d values at %g", g[i].Len(), scale)
		}
		for _, worst := range []float32{3e9, float32(math.Inf(1)), float32(math.NaN())} {
			m.putLongs(g[2].Mark, []int64{markOf(worst)})
			require.NoError(t, d.SumSquaresExact(got, g))
			for i, s := range got {
				marked := map[bool]float32{true: worst}[i == 2]
				require.Equal(t, math.Float32bits(marked), math.Float32bits(s.Worst), "marks, sums %d", i)
			}
		}
		m.free()
	}
}

func sameUpdate(t *testing.T, want npu.Device, got []npu.Device) {
	for _, scale := range []float64{1, 1e9, 1e-8, 0} {
		a := runAdamW(t, want, updateCases(), 3, scale)
		y, sums, exact := runReductions(t, want, scale)
		for _, d := range got {
			name, b := fmt.Sprintf("%s at %g: ", d.Info().Name, scale), runAdamW(t, d, updateCases(), 3, scale)
			for i, c := range updateCases() {
				equalOutputs(t, fmt.Sprintf("%s%+v: ", name, c), a[i], b[i])
			}
			y2, sums2, exact2 := runReductions(t, d, scale)
			for i, n := range updateLengths() {
				equal(t, fmt.Sprintf("%s%d values: sum", name, n), y[i], y2[i])
			}
			require.Equal(t, sums, sums2, name+"sums of squares")
			require.Equal(t, exact, exact2, name+"exact sums of squares")
		}
	}
}

// runReductions adds vectors to themselves, and sums the squares of vectors and gradients.
func runReductions(t *testing.T, d npu.Device, scale float64) (y [][]float32, sums []float64, exact []npu.Squares) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	var x []npu.Buffer
	var g []npu.Sums
	for _, n := range updateLengths() {
		values := normal(rand.New(rand.NewPCG(uint64(n), 2)), n, scale)
		_, gradient := updateOperands(n, scale)
		to := m.put(values)
		d.Add(to, m.put(values))
		x, g, y = append(x, m.put(values)), append(g, m.putSums(gradient)), append(y, m.get(to))
	}
	sums, exact = make([]float64, len(x)), make([]npu.Squares, len(g))
	require.NoError(t, d.SumSquares(sums, x))
	require.NoError(t, d.SumSquaresExact(exact, g))
	return y, sums, exact
}
