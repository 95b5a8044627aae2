package nputest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
)

// normal draws n values from a normal distribution with mean 0 and standard deviation scale.
func normal(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

// filled returns n values equal to by.
func filled(n int, by float32) []float32 { return slices.Repeat([]float32{by}, n) }

// widen converts x to float64.
func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// rms returns the root mean square of x, the typical size that errors are measured
// against.
func rms(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum / float64(max(len(x), 1)))
}

// numerics returns the numerics of a device.
func numerics(d npu.Device) npu.Numerics { return d.Info().Numerics }

// round returns x as weights and activations of the numerics.
func round(n npu.Numerics, x []float32) []float32 {
	if n == npu.FP32 {
		return x
	}
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = bf16.Round(v).Float()
	}
	return y
}

// unit is an error, relative to a typical value, that near allows: a few units in the last place.
type unit float64

const (
	unitFloat32  unit = 1e-6
	unitBFloat16 unit = 0x1p-7
)

// unitOf returns the unit of weights and activations, and of results that depend on rounded ones.
func unitOf(n npu.Numerics) unit {
	if n == npu.BF16 {
		return unitBFloat16
	}
	return unitFloat32
}

// loosened returns tolerance, which suits float32, or at least a few units of the numerics.
func loosened(n npu.Numerics, tolerance float64) float64 {
	if n == npu.BF16 {
		return max(tolerance, 2*float64(unitBFloat16))
	}
	return tolerance
}

// near compares got with the exact values want. It allows an error of three times the largest error of
// naive, the result of naive code in float32, plus a unit of a typical value.
func near(t testing.TB, u unit, name string, got []float32, want []float64, naive []float32) {
	t.Helper()
	nearOf(t, u, name, got, want, naive, rms(want))
}

// nearOf is near for values that come from others of a typical size.
func nearOf(t testing.TB, u unit, name string, got []float32, want []float64, naive []float32, typical float64) {
	t.Helper()
	require.Len(t, got, len(want), name)
	worst := 0.0
	for i, w := range want {
		worst = max(worst, math.Abs(float64(naive[i])-w))
	}
	for i, w := range want {
		limit := 3*worst + float64(u)*(typical+math.Abs(w))
		if !(math.Abs(float64(got[i])-w) <= limit) {
			require.InDelta(t, w, got[i], limit, "%s[%d], naive code's largest error is %g", name, i, worst)
		}
	}
}

// within requires the relative error of got against the exact values want to be at most relative. For
// values smaller than the root mean square of want, the error is relative to that.
func within(t testing.TB, name string, got []float32, want []float64, relative float64) {
	t.Helper()
	require.Len(t, got, len(want), name)
	typical := rms(want)
	for i, w := range want {
		limit := relative * max(typical, math.Abs(w))
		if !(math.Abs(float64(got[i])-w) <= limit) {
			require.InDelta(t, w, got[i], limit, "%s[%d]", name, i)
		}
	}
}

// equal requires the same bits, except that any two NaN are equal.
func equal(t testing.TB, name string, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i, w := range want {
		if math.Float32bits(w) != math.Float32bits(got[i]) && (w == w || got[i] == got[i]) {
			require.Failf(t, "bits differ", "%s[%d]: %v (%#08x), expected %v (%#08x)", name, i,
				got[i], math.Float32bits(got[i]), w, math.Float32bits(w))
		}
	}
}

// finite requires all values to be finite.
func finite(t testing.TB, name string, x []float32) {
	t.Helper()
	for i, v := range x {
		if v-v != 0 {
			require.Failf(t, "not finite", "%s[%d] is %v", name, i, v)
		}
	}
}
