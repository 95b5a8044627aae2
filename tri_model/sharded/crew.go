package sharded

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/tri_model/sharded/lend"
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// crew is all ranks, as the trainer's goroutine sees them.
type crew struct {
	cfg    Config
	shape  *model.Config // whole
	dev    npu.Device
	ends   []parallel.Transport // of the ranks in this process
	ranks  []*rank
	life   context.Context //nolint:containedctx // from New to Close
	cancel context.CancelFunc
	work   conc.WaitGroup // ranks of this process, and readers of all ranks' answers
	mail   mail
	began  string // checksum of the starting weights
	canary *canary.Recorded
}

// rank is the trainer's view of one rank.
type rank struct {
	at     parallel.Coord
	params tensor.Params // without memory
	pieces tensor.Params // the parts of params whose moments it holds
	shape  *model.Config
	link   link[command, answer]
	shelf  lend.Lender
	direct chan answer // to calls that wait for them
	memory [npu.NumPurposes]int64
}

// mail holds answers that belong to micro-batches, and the first failure.
type mail struct {
	mu     sync.Mutex
	list   []answer
	ready  chan struct{} // holds a value when list is not empty, or after the first failure
	broken chan struct{} // closed after failed is set
	failed error
}

// setUp tells ranks what to hold and distributes the starting weights.
func (c *crew) setUp(ctx context.Context, each func(source.Use) error) error {
	setup := &Setup{Mesh: c.cfg.Mesh, Shape: *c.shape, Models: c.cfg.Models, Reduce: c.cfg.Reduce, Zero: c.cfg.Zero, Sequence: c.cfg.Sequence}
	if err := c.tell(ctx, c.ranks, command{Action: setUp, Setup: setup}); err != nil {
		return err
	}
	if len(c.cfg.Canary) > 0 {
		if err := perturb(ctx, c); err != nil {
			return fmt.Errorf("perturbed weights: %w", err)
		}
	}
	names := []which{policy}
	if c.cfg.Models.Reference {
		names = append(names, reference)
	}
	give, sums := c.give(ctx, names...), c.shape.Params().Sums()
	err := each(func(i int, p *tensor.Param, values []float32) error {
		if err := p.Sum(values, sums[p.Name], npu.Threads(c.dev)); err != nil {
			return err
		}
		return give(i, p, values)
	})
	if err != nil {
		return err
	}
	c.began = sums.Total()
	return c.settle(ctx)
}

// start connects to all ranks and starts those of this process.
func (c *crew) start(threads int) error {
	ctx, mesh, ends := c.life, c.cfg.Mesh, c.ends
	if len(ends) != mesh.Size() && (len(ends) != 1 || ends[0].Rank() != 0) {
		return fmt.Errorf("connect %d ranks: this process has %d, expected all or rank 0", mesh.Size(), len(ends))
	}
	var others, values *parallel.Group
	if len(ends) < mesh.Size() {
		var err error
		if others, err = groupOfAll(ends[0], "trainer"); err != nil {
			return err
		}
		if values, err = groupOfAll(ends[0], "values"); err != nil {
			return err
		}
	}
	for i := range mesh.Size() {
		shape, err := c.shape.Shard(mesh, mesh.Coord(i), c.cfg.Sequence)
		if err != nil {
			return err
		}
		r := &rank{at: mesh.Coord(i), shape: shape, params: shape.Params(), direct: make(chan answer)}
		for _, p := range reduce.Pieces(r.params, mesh, r.at, c.cfg.Zero) {
			r.pieces = append(r.pieces, p.Param)
		}
		c.ranks = append(c.ranks, r)
		if i < len(ends) {
			dev, err := c.dev.Fork(threads)
			if err != nil {
				return err
			}
			here, there := newPipe(c.mail.broken)
			own := lend.NewShelf(dev)
			r.link, r.shelf = here, own
			c.work.Go(func() { c.serve(ctx, dev, ends[i], there, own) })
		} else {
			r.link, r.shelf = wire[command, answer]{others, i}, lend.NewFar(values, i)
		}
		c.work.Go(func() { c.read(ctx, i, r) })
	}
	return nil
}

// has returns the tensors of which a rank has a kind of values.
func (r *rank) has(name which) tensor.Params {
	if name == first || name == second {
		return r.pieces
	}
	return r.params
}

// serve runs a rank of this process.
func (c *crew) serve(ctx context.Context, dev npu.Device, end parallel.Transport, l pipe[answer, command], s *lend.Shelf) {
	var track trace.Track
	if c.cfg.Track != nil {
		track = c.cfg.Track(end.Rank())
	}
	_ = serve(ctx, dev, end, l, s, nil, track) // its last answer has the error
	if closing := dev.Close(); closing != nil {
		c.fail(fmt.Errorf("rank %d: %w", end.Rank(), closing))
	}
}

// groupOfAll returns a group of all ranks: "trainer" for commands and answers, and "values" for what
// ranks of other processes lend.
func groupOfAll(end parallel.Transport, name string) (*parallel.Group, error) {
	all := make([]int, end.Size())
	for i := range all {
		all[i] = i
	}
	return parallel.NewGroup(end, name, all, limit)
}

// read receives a rank's answers until it ends.
func (c *crew) read(ctx context.Context, i int, r *rank) {
	for {
		a, err := r.link.recv(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				c.fail(err)
			}
			return
		case a.Action == leave:
			if a.Fault != nil {
				c.fail(a.Fault.of(i))
			}
			return
		case a.Action == forward || a.Action == derivative:
			a.rank = i
			c.mail.add(a)
		default:
			select {
			case r.direct <- a:
			case <-c.mail.broken: // nobody waits any more
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *mail) add(a answer) {
	l.mu.Lock()
	l.list = append(l.list, a)
	l.mu.Unlock()
	l.signal()
}

// signal makes ready receive a value.
func (l *mail) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// take returns the answers so far.
func (l *mail) take() []answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// putBack returns answers that take returned.
func (l *mail) putBack(list []answer) {
	if len(list) == 0 {
		return
	}
	l.mu.Lock()
	l.list = append(list, l.list...)
	l.mu.Unlock()
	l.signal()
}

// fail records the first failure and ends all waits.
func (c *crew) fail(err error) {
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	if c.mail.failed == nil {
		c.mail.failed = err
		close(c.mail.broken)
		c.mail.signal()
	}
}

// err returns the first failure of a rank.
func (c *crew) err() error {
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	return c.mail.failed
}

// answer waits for a rank's answer to a command. A rank answers or fails, so it takes no context: an
// answer that nobody waits for would meet the next command.
func (c *crew) answer(r *rank, to action) (answer, error) {
	select {
	case a := <-r.direct:
		if a.Action != to {
			return a, fmt.Errorf("rank answers command %d, expected %d", a.Action, to)
		}
		return a, nil
	case <-c.mail.broken:
		return answer{}, c.err()
	}
}

// settle waits until all ranks have done what they were told.
func (c *crew) settle(ctx context.Context) error {
	if err := c.tell(ctx, c.ranks, command{Action: settle}); err != nil {
		return err
	}
	for _, r := range c.ranks {
		if _, err := c.answer(r, settle); err != nil {
			return err
		}
	}
	return nil
}

// tell sends a command to some ranks. All get it, even if ctx ends, unless a rank fails.
func (c *crew) tell(ctx context.Context, to []*rank, m command) error {
	ctx = context.WithoutCancel(ctx)
	for _, r := range to {
		if err := c.err(); err != nil {
			return err
		}
		if err := r.link.send(ctx, m); err != nil {
			c.fail(err) // unless it is the consequence of an earlier failure
			return c.err()
		}
	}
	return nil
}

// replica returns the ranks of a replica.
func (c *crew) replica(i int) (all []*rank) {
	for _, r := range c.ranks {
		if r.at.DP == i {
			all = append(all, r)
		}
	}
	return all
}

// last returns the ranks of a replica's last stage.
func (c *crew) last(i int) []*rank {
	return slices.DeleteFunc(c.replica(i), func(r *rank) bool { return !r.shape.Last() })
}
