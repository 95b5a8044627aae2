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
	params    tensor.Params // tensors of its part of the decoder, which have no memory here
	pieces    tensor.Params // pieces of params whose moments the rank holds
	shape     *model.Config // shape of its part of the decoder
	link      link[command, answer]
	snapshots snapshotReader
	direct    chan answer            // answers that concern no micro-batch, for Models.answer
	memory    [npu.NumPurposes]int64 // bytes of its device memory by purpose, after the last update
}

// connect makes the links to all ranks and starts those of this process.
func (m *Models) connect(threads int) error {
	ctx := m.life
	mesh := m.cfg.Mesh
	local := m.transports
	onlyRank0 := len(local) == 1 && local[0].Rank() == 0
	if len(local) != mesh.Size() && !onlyRank0 {
		return fmt.Errorf("connect %d ranks: this process has %d, expected all or rank 0", mesh.Size(), len(local))
	}
	var commands, values *parallel.Group // used for the ranks of other processes
	if len(local) < mesh.Size() {
		var err error
		if commands, values, err = trainerGroups(local[0]); err != nil {
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
		if i < len(local) {
			dev, err := m.dev.Fork(threads)
			if err != nil {
				return err
			}
			trainerEnd, rankEnd := newPipe(m.inbox.failed)
			snapshots := newSnapshots(dev)
			r.link = trainerEnd
			r.snapshots = snapshots
			m.running.Go(func() { m.runRank(ctx, dev, local[i], rankEnd, snapshots) })
		} else {
			r.link = wire[command, answer]{commands, i}
			r.snapshots = &remoteSnapshots{group: values, peer: i}
		}
		m.running.Go(func() { m.read(ctx, i, r) })
	}
	return nil
}

// runRank runs a rank of this process and closes its device.
func (m *Models) runRank(
	ctx context.Context, dev npu.Device, t parallel.Transport, l pipe[answer, command], s *snapshots,
) {
	var track trace.Track
	if m.cfg.Track != nil {
		track = m.cfg.Track(t.Rank())
	}
	_ = runWorker(ctx, dev, t, l, s, nil, track) // the rank's last answer has the error
	if err := dev.Close(); err != nil {
		m.inbox.fail(fmt.Errorf("rank %d: %w", t.Rank(), err))
	}
}

// Follow runs a rank whose trainer is in the process of rank 0, until the trainer ends it, and closes t.
// After a complete run the result is nil. If the trainer stopped the run early or failed, it is
// ErrStopped or ErrFailed. Otherwise it is the error with which this rank failed.
func Follow(ctx context.Context, dev npu.Device, t parallel.Transport, track trace.Track) error {
	commands, values, err := trainerGroups(t)
	if err != nil {
		return err
	}
	err = runWorker(ctx, dev, t, wire[answer, command]{commands, 0}, newSnapshots(dev), values, track)
	return errors.Join(err, t.Close())
}

// noLimit makes calls of a group wait until their context ends. A rank may wait for another one as long
// as a pass takes. The transport itself detects a rank that has died or hangs.
const noLimit = 0

// trainerGroups returns two groups of all ranks: one for commands and answers, and one on which the
// trainer's process reads snapshots of other processes. There are two because other goroutines than the
// trainer's read snapshots.
func trainerGroups(t parallel.Transport) (commands, values *parallel.Group, err error) {
	all := firstRanks(t.Size())
	if commands, err = parallel.NewGroup(t, "trainer", all, noLimit); err != nil {
		return nil, nil, err
	}
	values, err = parallel.NewGroup(t, "values", all, noLimit)
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

// read receives a rank's answers until the rank or ctx ends. It adds those of micro-batches to the inbox
// and sends others to r.direct.
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
			case <-m.inbox.failed: // no call waits any more
			case <-ctx.Done():
				return
			}
		}
	}
}

// inbox holds answers that belong to micro-batches until Models.poll takes them, and the first
// failure. Any goroutine may call add and fail, but only the trainer's calls take. The inbox is not
// bounded, so that a rank never waits for the trainer. It holds at most two answers for each micro-batch
// in flight.
type inbox struct {
	ready  chan struct{} // gets a value, if it has none, after each add and after the first failure
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

// signal sends a value to ready unless it holds one.
func (b *inbox) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take removes and returns all answers, in the order of add.
func (b *inbox) take() []answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	answers := b.answers
	b.answers = nil
	return answers
}

// putBack inserts answers of take before all others.
func (b *inbox) putBack(answers []answer) {
	if len(answers) == 0 {
		return
	}
	b.mu.Lock()
	b.answers = append(answers, b.answers...)
	b.mu.Unlock()
	b.signal()
}

// fail records the first failure and ends all waiting for the inbox.
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

// send sends a command to ranks. It fails only if a rank has failed. It ignores the end of ctx, after
// which only some ranks would have the command.
func (m *Models) send(ctx context.Context, to []*rank, c command) error {
	ctx = context.WithoutCancel(ctx)
	for _, r := range to {
		if err := m.inbox.err(); err != nil {
			return err
		}
		if err := r.link.send(ctx, c); err != nil {
			m.inbox.fail(err) // has no effect if err follows from an earlier failure
			return m.inbox.err()
		}
	}
	return nil
}

// answer waits for a rank's answer to a command with the action to. It takes no context, because every
// rank answers or fails, and an answer that was not received would be taken for that of the next command.
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
