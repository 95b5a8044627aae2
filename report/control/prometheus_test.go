package control

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

func TestPrometheus(t *testing.T) {
	t.Parallel()
	require.Equal(t, `# HELP easyrl_step step of the last step.
# TYPE easyrl_step gauge
easyrl_step 3
# HELP easyrl_eval_a_b_mean_4 eval/a-b/mean@4 of the last step.
# TYPE easyrl_eval_a_b_mean_4 gauge
easyrl_eval_a_b_mean_4 0.5
# HELP easyrl_memory_peak_bytes memory/peak_bytes of the last step.
# TYPE easyrl_memory_peak_bytes gauge
easyrl_memory_peak_bytes 1e+09
`, prometheus(report.Values{"step": 3, "eval/a-b/mean@4": .5, "eval/a_b/mean@4": .25, "memory/peak_bytes": 1e9,
		"actor/loss": math.NaN()}, "of the last step"))
	require.Empty(t, prometheus(nil, "now"))
}
