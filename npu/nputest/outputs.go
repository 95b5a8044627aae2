package nputest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// outputs holds the results of kernels in host memory, by name.
type outputs struct {
	values map[string][]float32
	sums   map[string]sums // of gradients
}

// testCase holds the operands of a few kernels in host memory.
type testCase interface {
	fmt.Stringer
	// run calls the kernels on a device. Outputs start as NaN, to expose values that a kernel
	// does not write, unless kernels add to them.
	run(t *testing.T, d npu.Device) outputs
}

// add appends the rows of another part's outputs and adds its sums.
func (o *outputs) add(part outputs) {
	if o.values == nil {
		o.values, o.sums = map[string][]float32{}, map[string]sums{}
	}
	for name, x := range part.values {
		o.values[name] = slices.Concat(o.values[name], x)
	}
	for name, x := range part.sums {
		all := o.sums[name]
		all.add(x)
		o.sums[name] = all
	}
}

// equalOutputs requires the same bits in all outputs.
func equalOutputs(t *testing.T, name string, want, got outputs) {
	t.Helper()
	require.Len(t, got.values, len(want.values), name)
	require.Len(t, got.sums, len(want.sums), name)
	for output, x := range want.values {
		equal(t, name+" "+output, x, got.values[output])
	}
	for output, x := range want.sums {
		require.Equal(t, x, got.sums[output], "%s %s", name, output)
	}
}

// finiteOutputs requires all outputs to be finite.
func finiteOutputs(t *testing.T, name string, got outputs) {
	t.Helper()
	for output, x := range got.values {
		finite(t, name+" "+output, x)
	}
	for output, x := range got.sums {
		require.Zero(t, x.worst, "%s %s", name, output)
	}
}

// sameOutputs runs the cases at each scale of values. It requires the same bits from the devices got as
// from want.
func sameOutputs[C testCase](
	t *testing.T, want npu.Device, got []npu.Device, cases func(scale float64) []C, scales ...float64,
) {
	t.Helper()
	if len(got) == 0 {
		return
	}
	for _, scale := range scales {
		for _, c := range cases(scale) {
			r := c.run(t, want)
			for _, d := range got {
				name := fmt.Sprintf("%s with %d threads: %v at %g", d.Info().Name, npu.Threads(d), c, scale)
				equalOutputs(t, name, r, c.run(t, d))
			}
		}
	}
}
