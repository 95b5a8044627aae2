package torch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

const (
	overlapGroups   = 80
	overlapForward  = time.Second
	overlapBackward = 2 * time.Second
)

// Ranks train groups while others are still being sampled: a step takes hardly longer than
// the slower of the two, so that its gain over sampling first is near (Ti+Tt)/max(Ti,Tt). On
// synctest's clock only the passes and the sampling take time.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{wire.Free, wire.Lockstep} {
		for _, replicas := range []int{1, 2} {
			training := overlapGroups * (overlapForward + overlapBackward) / time.Duration(replicas)
			for _, ratio := range []float64{0.25, 0.5, 1, 2, 4} {
				t.Run(fmt.Sprintf("%s, %d replicas, Ti:Tt %v", mode, replicas, ratio), func(t *testing.T) {
					cfg := configure(start(t), t.TempDir())
					cfg.DP, cfg.Mode = replicas, mode
					synctest.Test(t, func(t *testing.T) {
						sampling := time.Duration(ratio * float64(training))
						share := max(sampling, training).Seconds() / overlappingStep(t, cfg, sampling).Seconds()
						t.Logf("%.3f of the ceiling", share)
						require.Greater(t, share, 0.95)
					})
				})
			}
		}
	}
}

// overlappingStep returns the duration of a step whose groups arrive evenly over the time of
// sampling.
func overlappingStep(t *testing.T, cfg Config, sampling time.Duration) time.Duration {
	t.Helper()
	st, err := play(t, cfg, &fake.Ranks{Fault: func(at fake.Moment) fake.Fault {
		switch at.Kind {
		case wire.Forward{}.Kind():
			<-time.After(overlapForward)
		case wire.Backward{}.Kind():
			<-time.After(overlapBackward)
		}
		return fake.None
	}})
	defer st.end()
	require.NoError(t, err)
	began := time.Now()
	for i := range overlapGroups {
		arrival := time.After(time.Until(began.Add(sampling * time.Duration(i+1) / overlapGroups)))
		for waiting := true; waiting; {
			select {
			case <-arrival:
				waiting = false
			case <-st.Ready():
				require.NoError(t, st.Poll(t.Context()))
			}
		}
		require.NoError(t, st.Pass(t.Context(), batch(1)[0],
			func(lp backend.Outputs) (backend.Values, error) { return objective(lp), nil }))
	}
	require.NoError(t, st.Flush(t.Context()))
	_, err = st.Step(t.Context(), backend.Update{Number: 1, Scale: 0.05, LR: 1e-2})
	require.NoError(t, err)
	return time.Since(began)
}
