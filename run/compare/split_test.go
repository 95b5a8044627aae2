package compare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report/steptime"
)

// The recommended number of servers is the smallest with which sampling takes no longer
// than training.
func TestServers(t *testing.T) {
	t.Parallel()
	share := steptime.Split{TrainerThreads: 4}
	m := steptime.Fit([]steptime.Measured{{Split: share, WaitsForBatch: true, Servers: 2, Step: 12, Sampling: 8, Training: 4}}, steptime.Workload{Groups: 10, Waves: 10})
	r := (&Comparison{machine: 4}).servers(m, &Result{Share: share, Servers: 2, ServerCores: 8})
	require.Equal(t, 4, r.Servers, "they bring their own cores")
	require.InDelta(t, 4+0.2*4, r.Step, 1e-9, "the first group takes a tenth of 8, however many servers")
}

// Servers on this machine share its cores with the trainer.
func TestServersOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ trainer, servers, serverCores, machine, want, threads int }{
		{4, 2, 2, 8, 4, 4}, // all fit
		{4, 2, 2, 6, 3, 3}, // 2 servers beside 4 threads are slower
		{4, 2, 4, 6, 2, 2}, // 2 cores each
		{2, 1, 2, 2, 0, 0}, // a server alone fills the machine
		{4, 2, 0, 2, 4, 4}, // of unknown size
	} {
		share := steptime.Split{TrainerThreads: row.trainer}
		m := steptime.Fit([]steptime.Measured{{Split: share, WaitsForBatch: true, Servers: 2, Step: 12, Sampling: 8, Training: 4}}, steptime.Workload{Groups: 10, Waves: 10})
		r := (&Comparison{machine: row.machine, local: true}).servers(m, &Result{Share: share, Servers: float64(row.servers), ServerCores: row.serverCores})
		require.Equal(t, row.want, r.Servers, row)
		require.Equal(t, row.threads, r.Share.TrainerThreads, row)
		if row.serverCores > 0 {
			require.LessOrEqual(t, r.Share.TrainerThreads+r.Servers*row.serverCores/row.servers, row.machine)
		}
	}
}

func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	for endpoints, want := range map[string]bool{
		"": false, "http://127.0.0.1:8000": true, "http://localhost:1 http://[::1]:2": true, "http://127.0.0.1:8000 http://gpu1:8000": false,
		"easyrl@http://10.0.0.1:1": false,
	} {
		require.Equal(t, want, onThisMachine(configs.Inference{Kind: "easyrl", Endpoints: strings.Fields(endpoints)}), endpoints)
	}
}

// No recommendation needs more cores than the machine has.
func TestRecommendationsFitTheMachine(t *testing.T) {
	t.Parallel()
	none := 0
	for cores := 1; cores <= 4; cores++ {
		for _, keys := range [][]string{nil, {"inference.instances=3"}, {"device.threads=4", "inference.threads=4"}, {"device.threads=1", "inference.threads=1", "inference.instances=5"}} {
			for _, modes := range [][]string{nil, {configs.Sync}, {configs.PeriodicAsync}, {configs.Colocated}} {
				o := options(t, "")
				o.Cores, o.Settings, o.Modes, o.Train = cores, keys, modes, (&machine{t: t}).train
				c, err := Run(t.Context(), o)
				require.NoError(t, err)
				if c.Recommend == nil {
					none++
					require.Contains(t, strings.Join(c.Findings, "\n"), fmt.Sprintf("than the %d cores of this machine", cores))
					continue
				}
				require.LessOrEqual(t, c.Recommend.Share.Threads(), cores, "%s %v: %v", keys, modes, c.Recommend.Settings)
				require.LessOrEqual(t, c.Runs[0].Cores, cores)
			}
		}
	}
	require.Positive(t, none)
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
