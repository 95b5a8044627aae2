package torch

import (
	"bufio"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/torch/wire"
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
			g := &group{cfg: &Config{Deadlines: Deadlines{Pass: time.Hour}}, ranks: []*rank{r}}
			_, err := g.score(ctx, wire.Score{ID: 1, Temperature: 1}, layout)
			require.ErrorIs(t, err, context.Canceled)
			require.GreaterOrEqual(t, <-allowed, int64(4*len(layout.Targets)))
		})
	}
}

// A rank reports its failure and ends while it is being written to. The session hears the report first.
func TestReportBeforeEndOfConnection(t *testing.T) {
	t.Parallel()
	for range 300 { // the race detector varies the order of the goroutines
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			r := newRank(arrival{conn: near, r: bufio.NewReader(near)}, trace.Track{})
			events := make(chan event, 4)
			r.start(events, func() {}, time.Hour, time.Hour)
			require.NoError(t, r.send(wire.Discard{}, wire.Body{}))
			synctest.Wait() // until writing waits for the rank
			require.NoError(t, wire.Send(far, wire.Failed{Error: "full"}, wire.Body{}))
			require.NoError(t, far.Close())
			first, second := <-events, <-events
			require.NoError(t, first.err)
			require.Equal(t, wire.Failed{}.Kind(), first.frame.Kind)
			require.Equal(t, errClosed, second.err)
			r.close()
			require.Empty(t, events)
		})
	}
}
