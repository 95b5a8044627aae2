package loss

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// For every kind that methods lists, the gradient is that of the value, and neither depends on the
// other responses of a call.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, change := range map[string]func(*Config){
				"alone":             func(*Config) {},
				"with a reference":  func(c *Config) { c.Beta, c.KL = 0.1, K3 },
				"with a correction": func(c *Config) { c.DualClip, c.Correction = 3, Mask },
			} {
				o := objectiveOf(t, func(c *Config) { c.Kind = kind; change(c) })
				v := randomResponses(4, 11)
				got, err := o.Eval(v)
				require.NoError(t, err, name)
				requireSlopes(t, o, v, got.Grad, name)
				requireApart(t, o, v, got.Grad, name)
			}
		})
	}
}

// requireSlopes checks that a gradient is between the slopes of the value on both sides of
// v, with each stop held at its value at v. The slopes differ only at corners, where few
// tokens may be.
func requireSlopes(t *testing.T, o *Objective, v Vars, grad []float32, name string) {
	t.Helper()
	const h = 1.0 / 16384
	p, err := o.compile(len(v.Policy))
	require.NoError(t, err, name)
	stopped := map[int][]float64{}
	value := func(policy []float32, hold func(int, []float64)) (sum float64) {
		moved := v
		moved.Policy = policy
		p.x.hold = hold
		out, err := p.run(&moved)
		require.NoError(t, err, name)
		for _, loss := range out[1] {
			sum += loss
		}
		return sum
	}
	here := value(v.Policy, func(stop int, value []float64) { stopped[stop] = append([]float64(nil), value...) })
	corners, largest := 0, 0.0
	for i, g := range grad {
		at := func(d float32) float64 {
			policy := append([]float32(nil), v.Policy...)
			policy[i] += d
			return value(policy, func(stop int, value []float64) { copy(value, stopped[stop]) })
		}
		ahead, behind := (at(h)-here)/h, (here-at(-h))/h
		rounding := 1e-6 * (1 + math.Abs(ahead))
		if math.Abs(ahead-behind) > 1e-2*(1+math.Abs(ahead)) {
			corners++
		}
		require.GreaterOrEqual(t, float64(g), min(ahead, behind)-rounding,
			"%s: token %d: the gradient is not the slope of the loss", name, i)
		require.LessOrEqual(t, float64(g), max(ahead, behind)+rounding,
			"%s: token %d: the gradient is not the slope of the loss", name, i)
		largest = max(largest, math.Abs(float64(g)))
	}
	require.Less(t, corners, len(grad)/10, "%s: corners", name)
	require.Positive(t, largest, "%s: nothing is learned", name)
}

// requireApart compares with the gradients of the responses one by one, to the bit.
func requireApart(t *testing.T, o *Objective, v Vars, grad []float32, name string) {
	t.Helper()
	var apart []float32
	for i := range v.Lengths {
		one, err := o.Eval(v.cut(i, i+1))
		require.NoError(t, err, name)
		apart = append(apart, one.Grad...)
	}
	require.Equal(t, grad, apart, name)
}
