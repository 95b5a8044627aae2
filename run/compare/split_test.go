package compare

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/steptime"
)

// The recommended number of servers is the smallest with which sampling takes no longer
// than training.
func TestServers(t *testing.T) {
	t.Parallel()
	share := steptime.Split{TrainerThreads: 4}
	m := steptime.Fit([]steptime.Measured{{Split: share, WaitsForBatch: true, Servers: 2, Step: 12, Sampling: 8, Training: 4}}, steptime.Workload{Groups: 10, Waves: 10})
	r := servers(m, share)
	require.Equal(t, 4, r.Servers)
	require.InDelta(t, 4+0.2*4, r.Step, 1e-9, "the first group takes a tenth of 8, however many servers")
}

func TestSplits(t *testing.T) {
	t.Parallel()
	all := splits(4, 2)
	require.Len(t, all, 2)
	require.Equal(t, []string{"run.mode=colocated", "device.threads=4", "inference.instances=2", "inference.threads=2"}, all[0].Settings)
	require.Equal(t, []string{"run.mode=periodic-async", "device.threads=0", "inference.instances=2", "inference.threads=1"}, all[1].Settings)
	require.Len(t, splits(2, 3), 2, "at most one instance per remaining core")
	require.Len(t, splits(1, 1), 1, "a single core must alternate")
}
