package splitmix

import (
	"math"

	"github.com/easyrl/easyrl/internal/rounded"
)

// Normal draws from N(0, 1) by the polar method. The draws of a seed are the same on every
// machine. A Normal is not safe for concurrent use.
type Normal struct {
	Seed     uint64  // set before the first draw
	drawn    uint64  // number of uniform draws so far
	spare    float64 // the second value of a pair, if hasSpare
	hasSpare bool
}

// Next returns the next draw.
func (r *Normal) Next() float64 {
	if r.hasSpare {
		r.hasSpare = false
		return r.spare
	}
	for {
		u, v := float64(2*r.uniform())-1, float64(2*r.uniform())-1
		s := float64(u*u) + float64(v*v)
		if s >= 1 || s == 0 {
			continue
		}
		f := math.Sqrt(-2 * rounded.Log(s) / s)
		r.spare, r.hasSpare = float64(v*f), true
		return float64(u * f)
	}
}

// uniform draws from [0, 1).
func (r *Normal) uniform() float64 {
	x := At(r.Seed, r.drawn)
	r.drawn++
	return float64(float64(x>>11) / (1 << 53))
}
