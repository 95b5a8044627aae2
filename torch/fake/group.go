package fake

import (
	"context"
	"sync"
)

// group adds the gradients of replicas.
type group struct {
	mu    sync.Mutex
	round *round
}

func newGroup() *group { return &group{round: &round{full: make(chan struct{})}} }

// round is one addition.
type round struct {
	parts [][]int64 // by rank
	given int
	sum   []int64
	full  chan struct{} // closed when sum is set
}

// add gives a rank's values, waits for those of all others, and returns the sum. Nil values add
// nothing. The caller must not change the sum.
func (g *group) add(ctx context.Context, world, number int, values []int64) ([]int64, error) {
	g.mu.Lock()
	now := g.round
	if now.parts == nil {
		now.parts = make([][]int64, world)
	}
	now.parts[number] = values
	if now.given++; now.given == world {
		for _, part := range now.parts {
			if now.sum == nil {
				now.sum = append(now.sum, part...)
				continue
			}
			for i, v := range part {
				now.sum[i] += v
			}
		}
		g.round = &round{full: make(chan struct{})}
		close(now.full)
	}
	g.mu.Unlock()
	select {
	case <-now.full:
		return now.sum, nil
	case <-ctx.Done():
		return nil, errDied
	}
}
