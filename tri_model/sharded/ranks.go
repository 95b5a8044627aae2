package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// rank is the trainer's view of one rank.
type rank struct {
	at        parallel.Coord
	params    tensor.Params // without memory
	pieces    tensor.Params // the parts of params whose moments it holds
	shape     *model.Config
	link      link[command, answer]
	snapshots snapshotReader
	direct    chan answer // to calls that wait for an answer of this rank
	memory    [npu.NumPurposes]int64
}

// connect makes the links to all ranks and starts those of this process.
func (m *Models) connect(threads int) error {
	ctx := m.life
	mesh := m.cfg.Mesh
	ends := m.ends
	if len(ends) != mesh.Size() && (len(ends) != 1 || ends[0].Rank() != 0) {
		return fmt.Errorf("connect %d ranks: this process has %d, expected all or rank 0", mesh.Size(), len(ends))
	}
	var commands, values *parallel.Group // to the ranks of other processes
	if len(ends) < mesh.Size() {
		var err error
		if commands, values, err = trainerGroups(ends[0]); err != nil {
			return err
		}
	}
	for i := range mesh.Size() {
		shape, err := m.shape.Shard(mesh, mesh.Coord(i), m.cfg.Sequence)
		if err != nil {
			return err
		}
		r := &rank{at: mesh.Coord(i), shape: shape, params: shape.Params(), direct: make(chan answer)}
		for _, p := range reduce.Pieces(r.params, mesh, r.at, m.cfg.Zero) {
			r.pieces = append(r.pieces, p.Param)
		}
		m.ranks = append(m.ranks, r)
		if i < len(ends) {
			dev, err := m.dev.Fork(threads)
			if err != nil {
				return err
			}
			here, there := newPipe(m.inbox.failed)
			own := newSnapshots(dev)
			r.link, r.snapshots = here, own
			m.running.Go(func() { m.runRank(ctx, dev, ends[i], there, own) })
		} else {
			r.link = wire[command, answer]{commands, i}
			r.snapshots = &remoteSnapshots{group: values, peer: i}
		}
		m.running.Go(func() { m.read(ctx, i, r) })
	}
	return nil
}

// runRank runs a rank of this process.
func (m *Models) runRank(
	ctx context.Context, dev npu.Device, end parallel.Transport, l pipe[answer, command], s *snapshots,
) {
	var track trace.Track
	if m.cfg.Track != nil {
		track = m.cfg.Track(end.Rank())
	}
	_ = runWorker(ctx, dev, end, l, s, nil, track) // its last answer has the error
	if err := dev.Close(); err != nil {
		m.inbox.fail(fmt.Errorf("rank %d: %w", end.Rank(), err))
	}
}

// Follow runs a rank whose trainer is in the process of rank 0, until the trainer ends. Its error is
// ErrStopped or ErrFailed if rank 0's run does not end.
func Follow(ctx context.Context, dev npu.Device, end parallel.Transport, track trace.Track) error {
	commands, values, err := trainerGroups(end)
	if err != nil {
		return err
	}
	err = runWorker(ctx, dev, end, wire[answer, command]{commands, 0}, newSnapshots(dev), values, track)
	return errors.Join(err, end.Close())
}

// noLimit lets a rank wait for another one in a call until its context ends. Ranks wait for each
// other as long as a pass takes; a rank that has died or hangs is noticed by its transport.
const noLimit = 0

// trainerGroups returns two groups of all ranks: one for commands and answers, and one on which the
// trainer's process reads other processes' snapshots. There are two since snapshots are read from
// other goroutines than the trainer's.
func trainerGroups(end parallel.Transport) (commands, values *parallel.Group, err error) {
	all := firstRanks(end.Size())
	if commands, err = parallel.NewGroup(end, "trainer", all, noLimit); err != nil {
		return nil, nil, err
	}
	values, err = parallel.NewGroup(end, "values", all, noLimit)
	return commands, values, err
}

// firstRanks returns the ranks 0 to n-1.
func firstRanks(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// read receives a rank's answers until it ends: those of micro-batches for the inbox, others for
// the call that waits for them.
func (m *Models) read(ctx context.Context, i int, r *rank) {
	for {
		a, err := r.link.recv(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				m.inbox.fail(err)
			}
			return
		case a.Action == leave:
			if a.Fault != nil {
				m.inbox.fail(a.Fault.of(i))
			}
			return
		case a.Action == forward || a.Action == derivative:
			a.rank = i
			m.inbox.add(a)
		default:
			select {
			case r.direct <- a:
			case <-m.inbox.failed: // nobody waits
			case <-ctx.Done():
				return
			}
		}
	}
}

// inbox holds answers that belong to micro-batches until Models.Poll takes them, and the first
// failure. Any goroutine may add or fail; only the trainer's takes. It is unbounded, so that a rank
// never waits for the trainer; its length is at most twice the number of micro-batches in flight.
type inbox struct {
	ready  chan struct{} // holds a value when answers is not empty, or after the first failure
	failed chan struct{} // closed after failure is set

	mu      sync.Mutex
	answers []answer
	failure error
}

func newInbox() inbox {
	return inbox{ready: make(chan struct{}, 1), failed: make(chan struct{})}
}

// add adds an answer of a micro-batch.
func (b *inbox) add(a answer) {
	b.mu.Lock()
	b.answers = append(b.answers, a)
	b.mu.Unlock()
	b.signal()
}

// signal makes ready receive a value.
func (b *inbox) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take returns the answers so far.
func (b *inbox) take() []answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	answers := b.answers
	b.answers = nil
	return answers
}

// putBack returns answers that take returned.
func (b *inbox) putBack(answers []answer) {
	if len(answers) == 0 {
		return
	}
	b.mu.Lock()
	b.answers = append(answers, b.answers...)
	b.mu.Unlock()
	b.signal()
}

// fail records the first failure and ends all waits.
func (b *inbox) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = err
		close(b.failed)
		b.signal()
	}
}

// err returns the first failure.
func (b *inbox) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// send sends a command to some ranks. It ignores the end of ctx, which would leave some ranks without
// the command; it fails only if a rank fails.
func (m *Models) send(ctx context.Context, to []*rank, c command) error {
	ctx = context.WithoutCancel(ctx)
	for _, r := range to {
		if err := m.inbox.err(); err != nil {
			return err
		}
		if err := r.link.send(ctx, c); err != nil {
			m.inbox.fail(err) // unless it follows from an earlier failure
			return m.inbox.err()
		}
	}
	return nil
}

// answer waits for a rank's answer to a command. A rank answers or fails, so answer takes no context:
// an answer that nobody waits for would meet the next command.
func (m *Models) answer(r *rank, to action) (answer, error) {
	select {
	case a := <-r.direct:
		if a.Action != to {
			m.inbox.fail(fmt.Errorf("rank answers command %d, expected %d", a.Action, to))
			return a, m.inbox.err()
		}
		return a, nil
	case <-m.inbox.failed:
		return answer{}, m.inbox.err()
	}
}

// barrier waits until all ranks have run all earlier commands.
func (m *Models) barrier(ctx context.Context) error {
	if err := m.send(ctx, m.ranks, command{Action: barrier}); err != nil {
		return err
	}
	for _, r := range m.ranks {
		if _, err := m.answer(r, barrier); err != nil {
			return err
		}
	}
	return nil
}

// replica returns the ranks of a replica.
func (m *Models) replica(i int) (all []*rank) {
	for _, r := range m.ranks {
		if r.at.DP == i {
			all = append(all, r)
		}
	}
	return all
}

// lastStage returns the ranks of a replica's last stage.
func (m *Models) lastStage(replica int) []*rank {
	return slices.DeleteFunc(m.replica(replica), func(r *rank) bool { return !r.shape.Last() })
}
