package sharded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/parallel"
)

// delayed is a rank's transport that holds some calls for a random time.
type delayed struct {
	*parallel.Local
	one int // call in so many that waits, on average

	mu     sync.Mutex
	random *rand.Rand
	waited int
}

// wait returns after up to 3 ms, or at once for most calls.
func (d *delayed) wait() {
	d.mu.Lock()
	var pause time.Duration
	if d.random.IntN(d.one) == 0 {
		pause = time.Duration(d.random.Int64N(int64(3 * time.Millisecond)))
		d.waited++
	}
	d.mu.Unlock()
	if pause > 0 {
		<-time.After(pause)
	}
}

func (d *delayed) Send(ctx context.Context, e parallel.Envelope, data []byte) error {
	d.wait()
	return d.Local.Send(ctx, e, data)
}

func (d *delayed) Recv(ctx context.Context, e parallel.Envelope, into []byte) error {
	d.wait()
	return d.Local.Recv(ctx, e, into)
}

func (d *delayed) View(ctx context.Context, e parallel.Envelope, n int, use func(data []byte)) error {
	d.wait()
	return d.Local.View(ctx, e, n, use)
}

// The bits do not depend on when messages are sent and received. One rank in each mesh waits more
// often than the others.
func TestDelaysKeepBits(t *testing.T) {
	t.Parallel()
	c, cfg := shapes()["qwen3"], config()
	cfg.OldPolicy = loss.PreviousStep
	want := hashOf(t, one(t, c, cfg, 2))
	for seed, own := range []Config{
		{Mesh: parallel.Mesh{DP: 3, TP: 1, PP: 1}, Zero: 2},
		{Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 1}, Sequence: true},
		{Mesh: parallel.Mesh{DP: 1, TP: 1, PP: 3}},
		{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}},
		{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}, Zero: 2, Sequence: true},
	} {
		t.Run(fmt.Sprintf("%s/zero=%d,sequence=%v", own.Mesh, own.Zero, own.Sequence), func(t *testing.T) {
			t.Parallel()
			own.Models = cfg
			var ends []*delayed
			m := openOver(t, c, own, func(end *parallel.Local) parallel.Transport {
				d := &delayed{Local: end, one: 10, random: rand.New(rand.NewPCG(uint64(seed), uint64(end.Rank())))}
				if end.Rank() == seed%own.Mesh.Size() {
					d.one = 2
				}
				ends = append(ends, d)
				return d
			})
			require.Equal(t, want, hashOf(t, train(t, m, c, 1, 2)))
			for _, d := range ends {
				d.mu.Lock()
				require.Positive(t, d.waited, "calls of rank %d that waited", d.Rank())
				d.mu.Unlock()
			}
		})
	}
}
