package trimodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/far"
)

// The host waits for the device once in a micro-batch, for its log-probabilities, and three
// times in an optimizer step, for the norm, the check of the weights and the publish. A
// micro-batch moves at most 64 bytes a row and 16 a target.
func TestWaitsAndTransfers(t *testing.T) {
	library := far.Library(t)
	for name, cfg := range map[string]Config{
		"policy":    {OldPolicy: loss.Behaviour, Temperature: 1},
		"three":     {OldPolicy: loss.PreviousStep, Reference: true, Temperature: 0.7},
		"recompute": {OldPolicy: loss.Behaviour, Temperature: 1, Recompute: true},
	} {
		t.Run(name, func(t *testing.T) {
			dev, err := device.Open(library, 1)
			require.NoError(t, err)
			defer dev.Close()
			m := openOn(t, dev, cfg)
			defer m.Close()
			for step := range 3 {
				for range 2 {
					require.NoError(t, m.dev.Sync())
					far.Reset(library)
					l := layout()
					require.NoError(t, m.Pass(t.Context(), l, func(lp backend.Logprobs) ([]float32, error) { return make([]float32, len(lp.Policy)), nil }))
					c := far.Read(library)
					require.EqualValues(t, 1, c.Waits, "step %d", step)
					if step > 0 { // the first pass also sends the table of rotary positions
						require.LessOrEqual(t, c.BytesUp+c.BytesDown, int64(64*l.Rows()+16*len(l.Targets)))
					}
				}
				far.Reset(library)
				_, err := m.Step(t.Context(), update(m))
				require.NoError(t, err)
				require.NoError(t, m.CheckFinite())
				_, err = m.Publish(t.Context(), int64(step+1))
				require.NoError(t, err)
				require.LessOrEqual(t, far.Read(library).Waits, int64(3), "step %d", step)
			}
		})
	}
}
