package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/simulate"
	"github.com/easyrl/easyrl/internal/soak"
)

func TestListSchedule(t *testing.T) {
	t.Parallel()
	// Two slots: 5 and 1, 2 after the 1, 3 after the 2 and 4 after the 5.
	require.Equal(t, 9*time.Second, listSchedule([]int32{5, 1, 2, 3, 4}, 1, 2))
	require.Equal(t, 15*time.Second/10, listSchedule([]int32{5, 1, 2, 3, 4}, 10, 1))
	require.Equal(t, 5*time.Second, listSchedule([]int32{5, 1, 2, 3, 4}, 1, 50))
}

// In virtual time the machine's speed does not matter, so idle slots are caused by
// dispatch. A fleet starts without knowing the lengths.
func TestIdle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lengths                   string
		instances, prompts, group int
		maxTokens                 int
	}{
		"alone":      {"lognormal:500,0.6", 50, 40_000, 1, 2048},
		"groups":     {"lognormal:500,0.6", 50, 10_000, 8, 2048},
		"heavy tail": {"lognormal:500,1.5", 4, 3_000, 8, 32_000},
	} {
		if soak.Race && name != "heavy tail" { // the fewest requests
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, err := simulate.Parse("tokens_per_second=125,slots=32,lengths=" + c.lengths)
				require.NoError(t, err)
				s := scale{instances: c.instances, prompts: c.prompts, group: c.group, maxTokens: c.maxTokens,
					cfg: cfg, ahead: -1}
				r, err := s.measure(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.prompts, r.groups)
				t.Logf("idle %.4f, and %.4f beyond", r.idle(r.ideal), r.idle(r.wall)-r.idle(r.ideal))
				require.Less(t, r.idle(r.wall)-r.idle(r.ideal), 0.03)
				require.GreaterOrEqual(t, r.wall, r.ideal-r.ideal/20)
			})
		})
	}
}
