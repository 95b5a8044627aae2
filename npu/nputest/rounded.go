package nputest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/easyrl/easyrl/npu"
)

// roundedCase is a test case with the operands that a device of some numerics sees.
type roundedCase[C any] interface {
	testCase
	on(n npu.Numerics) C
}

// roundedOutputs runs the cases with operands of BF16. It requires the outputs of want, a device of FP32, from the
// devices got: rounded if they are activations, else with the same bits.
func roundedOutputs[C roundedCase[C]](t *testing.T, want npu.Device, got []npu.Device, cases func(scale float64) []C,
	activations func(c C, output string) bool) {
	t.Helper()
	for _, scale := range []float64{1, 1e4, 0x1p-61, 1e-40} {
		for _, c := range cases(scale) {
			c = c.on(npu.BF16)
			r := c.run(t, want)
			for output, x := range r.values {
				if activations(c, output) {
					r.values[output] = round(npu.BF16, x)
				}
			}
			for _, d := range got {
				equalOutputs(t, fmt.Sprintf("%s: %v at %g", d.Info().Name, c, scale), r, c.run(t, d))
			}
		}
	}
}

// softmaxCase is rows of logits.
type softmaxCase struct{ rows [][]float32 }

func softmaxCases(scale float64) (all []*softmaxCase) {
	for _, vocab := range []int{1, 17, 1500} {
		r := rand.New(rand.NewPCG(uint64(vocab), 13))
		c := &softmaxCase{}
		for range 5 {
			c.rows = append(c.rows, normal(r, vocab, scale))
		}
		all = append(all, c)
	}
	return all
}

// on returns c, because logits are float32.
func (c *softmaxCase) on(npu.Numerics) *softmaxCase { return c }

func (c *softmaxCase) String() string { return fmt.Sprintf("softmax of %d logits", len(c.rows[0])) }

func (c *softmaxCase) run(t *testing.T, d npu.Device) outputs {
	return softmax(t, d, c.rows, make([]int32, len(c.rows))...)
}

// roundedUpdate requires the same update, whose copy runAdamW checks.
func roundedUpdate(t *testing.T, want npu.Device, got []npu.Device) {
	for _, scale := range []float64{1, 1e9} {
		a := runAdamW(t, want, updateCases(), 3, scale)
		for _, d := range got {
			b := runAdamW(t, d, updateCases(), 3, scale)
			for i := range b {
				delete(b[i].values, "copy")
				equalOutputs(t, fmt.Sprintf("%s at %g: %+v", d.Info().Name, scale, updateCases()[i]), a[i], b[i])
			}
		}
	}
}
