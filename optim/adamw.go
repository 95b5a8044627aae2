package optim

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"

	"github.com/easyrl/easyrl/npu"
)

// ErrNonFinite reports a gradient that contains NaN or Inf, or that is out of range.
var ErrNonFinite = errors.New("not finite")

// ErrOutOfRange reports a finite gradient that the sums of gradients cannot hold. It wraps
// ErrNonFinite.
var ErrOutOfRange error = outOfRange{}

type outOfRange struct{}

// Error completes the sentence of gradientError.
func (outOfRange) Error() string { return "the bound of the fixed-point sums of gradients" }

func (outOfRange) Unwrap() error { return ErrNonFinite }

// Param is one weight with its gradient and the optimizer's moments. The caller owns the
// buffers, which all have the same length and layout.
type Param struct {
	Name  string // as in the model's files
	Terms int    // number of times that a unit contributes to each value (npu.FixedPoint.Split); 0 counts as 1
	npu.Update
}

// AdamW is the optimizer of Loshchilov and Hutter 2019 ("Decoupled weight decay
// regularization", algorithm 2). Its whole state is Updates and the parameters' moments.
type AdamW struct {
	Updates int // number of updates so far, on which the bias correction depends
	cfg     Config
}

// NewAdamW returns an optimizer that has made no updates.
func NewAdamW(cfg Config) (*AdamW, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new optimizer: %w", err)
	}
	return &AdamW{cfg: cfg}, nil
}

// Step updates the parameters from gradScale times the sums of their gradients at learning rate
// lr. The caller must have checked the sums with GradNorm and divided gradScale by the scale of
// their format. Step does not change the sums. The device's next Sync reports failures.
func (a *AdamW) Step(dev npu.Device, params []Param, gradScale, lr float64) error {
	if !finite(gradScale) || !finite(lr) {
		return fmt.Errorf("optimizer step %d: gradient scale %v, learning rate %v: %w", a.Updates+1, gradScale, lr,
			ErrNonFinite)
	}
	a.Updates++
	updates := make([]npu.Update, len(params))
	for i := range params {
		updates[i] = params[i].Update
	}
	dev.AdamW(updates, npu.AdamWParams{
		LR: float32(lr), Beta1: Beta1, Beta2: float32(a.cfg.Beta2), Eps: Eps,
		WeightDecay: float32(a.cfg.WeightDecay), GradScale: float32(gradScale), Step: a.Updates,
	})
	return nil
}

// GradNorm returns the global norm of the gradients, which are sums in the given format. The
// sum of squares is exact and rounded once, so its order does not matter. If a leaf's gradient
// was not finite or out of the format's range, the error wraps ErrNonFinite or ErrOutOfRange and
// names the first such parameter.
func GradNorm(dev npu.Device, params []Param, format npu.FixedPoint) (float64, error) {
	total, err := SumSquares(dev, params, format)
	if err != nil {
		return 0, err
	}
	return Norm(total, format), nil
}

// SumSquares returns the exact sum of squares of the sums of gradients. It fails like GradNorm.
func SumSquares(dev npu.Device, params []Param, format npu.FixedPoint) (*big.Int, error) {
	gradients := make([]npu.Sums, len(params))
	squares := make([]npu.Squares, len(params))
	for i := range params {
		gradients[i] = params[i].G
	}
	if err := dev.SumSquaresExact(squares, gradients); err != nil {
		return nil, fmt.Errorf("gradient norm: %w", err)
	}
	total := new(big.Int)
	for i := range squares {
		if worst := float64(squares[i].Worst); worst != 0 {
			return nil, gradientError(&params[i], worst, format)
		}
		for word, value := range squares[i].Sum {
			part := new(big.Int).SetUint64(value)
			total.Add(total, part.Lsh(part, 64*uint(word)))
		}
	}
	return total, nil
}

// gradientError returns the error of a parameter whose gradient has leaf values that are not finite or
// out of range. worst is their largest magnitude.
func gradientError(p *Param, worst float64, format npu.FixedPoint) error {
	if !finite(worst) {
		return fmt.Errorf("gradient of %s: a value of a leaf is %v: %w", p.Name, worst, ErrNonFinite)
	}
	bound := format.Split(p.Terms).Limit / format.Scale
	return fmt.Errorf("gradient of %s: a value of a leaf is %.4g in magnitude, expected at most %.4g, %w",
		p.Name, worst, bound, ErrOutOfRange)
}

// Norm returns the norm of gradients whose sum of squares is squares, in the given format.
func Norm(squares *big.Int, format npu.FixedPoint) float64 {
	sum, _ := new(big.Float).SetInt(squares).Float64()
	return math.Sqrt(sum) / float64(format.Scale)
}

// FixedPoint returns the format of the sums of gradients that are later divided by at most
// divisor. units is the maximum number of units of an update's leaves (npu.MaxUnits).
//
// After the division by a divisor of at least 1, a step of the sums is at most 2^-43; AdamW's epsilon,
// 1e-8, is about 2^-27. A leaf or a unit may contribute at least 2^16 / units to each value. This
// leaves room for the two gradients of a tied embedding. Where each head of a unit contributes, the
// heads share the limit (npu.FixedPoint.Split). If the sums are divided by less than divisor, steps
// and limit are larger in proportion.
func FixedPoint(divisor float64, units int) npu.FixedPoint {
	_, exponent := math.Frexp(max(divisor, 1)) // divisor < 2^exponent
	if divisor <= math.Ldexp(1, exponent-1) {
		exponent--
	}
	unitBits := bits.Len(uint(max(units, 1) - 1)) // units <= 2^unitBits
	return npu.FixedPoint{Scale: float32(math.Ldexp(1, max(0, 44-exponent))),
		Limit: float32(math.Ldexp(1, 61-unitBits))}
}

// ClipScale returns the factor that limits a gradient of the given norm: limit/norm if norm
// is above limit, otherwise 1. A limit of 0 does not clip.
func ClipScale(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}

// finite reports whether f is neither NaN nor infinite.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
