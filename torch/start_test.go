package torch

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/torch/fake"
)

// A rank that dies or falls silent during the first start costs one of the restarts. What a
// rank reports itself ends the start.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	const never = 100
	for name, test := range map[string]struct {
		fault  fake.Fault
		starts int // that fail
		warns  int
		err    string
	}{
		"dies":        {fake.Die, 1, 1, ""},
		"hangs twice": {fake.Hang, 2, 2, ""},
		"always dies": {fake.Die, never, 3,
			"torch: rank 1 on fake: closed its connection; restarted 3 times since update 0"},
		"always silent": {fake.Hang, never, 3,
			"torch: rank 1 on fake: sent nothing for 10s; restarted 3 times since update 0"},
		"fails":  {fake.Fail, never, 0, "torch: rank 1 on fake: told to fail at welcome of rank 1"},
		"stalls": {fake.Stall, never, 0, "torch: rank 1 on fake: load models: no answer within 30m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configure(start(t), t.TempDir())
			cfg.DP = 2
			synctest.Test(t, func(t *testing.T) {
				st, err := play(t, cfg, &fake.Ranks{Fault: func(at fake.Moment) fake.Fault {
					if at.Rank == 1 && at.Kind == "welcome" && at.Start <= test.starts {
						return test.fault
					}
					return fake.None
				}})
				defer st.end()
				require.Len(t, st.warnings, test.warns)
				if test.err != "" {
					require.EqualError(t, err, test.err)
					return
				}
				require.NoError(t, err)
				require.Contains(t, st.warnings[0], "; waiting for all ranks to connect again, from update 0 (1 of 3)")
				train(t, st, 1)
			})
		})
	}
}
