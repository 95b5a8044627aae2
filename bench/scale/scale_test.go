package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/simulate"
)

func TestListSchedule(t *testing.T) {
	t.Parallel()
	// Two slots: 5 and 1, 2 after the 1, 3 after the 2 and 4 after the 5.
	require.Equal(t, 9*time.Second, listSchedule([]int32{5, 1, 2, 3, 4}, 1, 2))
	require.Equal(t, 15*time.Second/10, listSchedule([]int32{5, 1, 2, 3, 4}, 10, 1))
	require.Equal(t, 5*time.Second, listSchedule([]int32{5, 1, 2, 3, 4}, 1, 50))
}

// In virtual time, where the machine's speed plays no part, what is idle is what
// the dispatch makes so; the requests have a response each.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, err := simulate.Parse("lengths=lognormal:500,0.6,tokens_per_second=125,slots=32")
		require.NoError(t, err)
		s := scale{instances: 50, prompts: 40_000, group: 1, maxTokens: 2048, cfg: cfg, ahead: -1}
		r, err := s.measure(t.Context())
		require.NoError(t, err)
		require.Equal(t, 40_000, r.groups)
		require.Less(t, r.idle(r.wall)-r.idle(r.ideal), 0.03)
		require.GreaterOrEqual(t, r.wall, r.ideal-r.ideal/20)
	})
}
