package torch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/trace"
)

// A rank may answer while its request is still being queued, so the answer's arrays must be allowed before.
func TestScoreAllowsItsAnswer(t *testing.T) {
	t.Parallel()
	layout := promptGroup(16)
	for range 300 { // the race detector varies the order of the two goroutines
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := newRank(arrival{}, trace.Track{})
			r.frames = make(chan []byte) // a queued frame is read at once
			allowed := make(chan int64, 1)
			go func() {
				<-r.frames
				allowed <- r.limit.Load()
				cancel()
			}()
			synctest.Wait()
			s := &Session{cfg: Config{Deadlines: Deadlines{Pass: time.Hour}}}
			err := s.score(ctx, &group{ranks: []*rank{r}}, &piece{id: 1, layout: layout}, "", 1,
				make([]float32, len(layout.Targets)))
			require.ErrorIs(t, err, context.Canceled)
			require.GreaterOrEqual(t, <-allowed, int64(4*len(layout.Targets)))
		})
	}
}
