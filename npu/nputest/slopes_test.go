package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// The derivatives of the reference of attention, which devices are compared with, are
// those of its outputs.
func TestAttentionReference(t *testing.T) {
	t.Parallel()
	for i, f := range forests() {
		if f.rows() > 40 {
			continue
		}
		for j, h := range headShapes() {
			c := newAttentionCase(f, h, uint64(100*i+j), 1)
			q, k, v, g := widen(c.q), widen(c.k), widen(c.v), widen(c.g)
			out, _ := reference.Attention(q, k, v, f.segments, h)
			dq, dk, dv := reference.AttentionBackward(g, out, q, k, v, f.segments, h)
			checkSlopes(t, fmt.Sprintf("%s %v", f.name, h), c, dq, dk, dv)
		}
	}
}

// checkSlopes compares a few derivatives of the reference with central differences.
func checkSlopes(t *testing.T, name string, c *attentionCase, dq, dk, dv []float64) {
	t.Helper()
	q, k, v, g := widen(c.q), widen(c.k), widen(c.v), widen(c.g)
	loss := func() float64 {
		out, _ := reference.Attention(q, k, v, c.segments, c.h)
		sum := 0.0
		for i, x := range out {
			sum += x * g[i]
		}
		return sum
	}
	r := rand.New(rand.NewPCG(7, uint64(len(q))))
	for range 2 {
		for _, p := range []struct {
			name string
			x, d []float64
		}{{"dq", q, dq}, {"dk", k, dk}, {"dv", v, dv}} {
			i := r.IntN(len(p.x))
			require.InDelta(t, reference.Slope(p.x, i, loss), p.d[i], 1e-6*(1+math.Abs(p.d[i])), "%s reference %s[%d]",
				name, p.name, i)
		}
	}
}
