package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/easyrl/easyrl/npu"
)

// ErrNonFinite reports a gradient that contains NaN or Inf.
var ErrNonFinite = errors.New("not finite")

// Param is one weight with its gradient and the optimizer's moments. The caller owns the
// buffers, which have one length and layout.
type Param struct {
	Name       string // as in the model's files
	W, G, M, V npu.Buffer
	Decay      bool // whether weight decay applies: matrices, not norms or biases
}

// AdamW is the optimizer of Loshchilov and Hutter 2019 ("Decoupled weight decay
// regularization", algorithm 2). Its whole state is Updates and the parameters' moments.
type AdamW struct {
	Updates int // made so far; the bias correction depends on it
	cfg     Config
}

// NewAdamW returns an optimizer that has made no updates.
func NewAdamW(cfg Config) (*AdamW, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new optimizer: %w", err)
	}
	return &AdamW{cfg: cfg}, nil
}

// Step updates the parameters in order, from gradScale times their gradients at learning
// rate lr, and waits for the device. It does not change the gradients. The caller has
// checked them with GradNorm.
func (a *AdamW) Step(dev npu.Device, params []Param, gradScale, lr float64) error {
	if !finite(gradScale) || !finite(lr) {
		return fmt.Errorf("optimizer step %d: gradient scale %v, learning rate %v: %w", a.Updates+1, gradScale, lr, ErrNonFinite)
	}
	a.Updates++
	for i := range params {
		p := &params[i]
		update := npu.AdamWParams{
			LR: float32(lr), Beta1: Beta1, Beta2: float32(a.cfg.Beta2), Eps: Eps,
			GradScale: float32(gradScale), Step: a.Updates,
		}
		if p.Decay {
			update.WeightDecay = float32(a.cfg.WeightDecay)
		}
		dev.AdamW(p.W, p.G, p.M, p.V, update)
	}
	if err := dev.Sync(); err != nil {
		return fmt.Errorf("optimizer step %d: %w", a.Updates, err)
	}
	return nil
}

// GradNorm returns the global norm of the gradients, summed in the order of params. If a
// gradient is not finite, the error wraps ErrNonFinite and names the first such parameter.
func GradNorm(dev npu.Device, params []Param) (float64, error) {
	sum := 0.0
	for i := range params {
		squares := dev.SumSquares(params[i].G)
		if !finite(squares) {
			return 0, fmt.Errorf("gradient of %s: sum of squares %v: %w", params[i].Name, squares, ErrNonFinite)
		}
		sum += squares
	}
	if err := dev.Sync(); err != nil {
		return 0, fmt.Errorf("gradient norm: %w", err)
	}
	return math.Sqrt(sum), nil
}

// ClipScale returns the factor that limits a gradient of the given norm: limit/norm if norm
// is above limit, otherwise 1. A limit of 0 does not clip.
func ClipScale(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
