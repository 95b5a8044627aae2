package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// world is the trainer's view of ranks that have joined together: it sends them commands and takes their
// answers. Only the trainer's goroutine calls its methods, except read, runRank, failure, write and release.
type world struct {
	cfg        *Config
	shape      *model.Config // shape of the complete decoder
	dev        npu.Device
	transports []parallel.Transport // transports of the ranks in this process
	ranks      []*rank              // all ranks of the mesh
	life       context.Context      //nolint:containedctx // until Close
	cancel     context.CancelFunc   // ends life
	running    conc.WaitGroup       // ranks of this process, and readers of all ranks' answers
	inbox      inbox
	inFlight   [][]flight // by replica: micro-batches in flight, in the order of Forward
	forwarded  [][]int64  // by replica: micro-batches since the last update, in the order of Forward
	answers    []answer   // taken from the inbox and not yet returned
	ended      ending     // what Close sends to the ranks
}

func newWorld(
	ctx context.Context, cfg *Config, shape *model.Config, dev npu.Device, transports []parallel.Transport,
	notify func(),
) *world {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &world{
		cfg: cfg, shape: shape, dev: dev, transports: transports, life: life, cancel: cancel,
		inbox: newInbox(notify), inFlight: make([][]flight, cfg.Mesh.DP),
		forwarded: make([][]int64, cfg.Mesh.DP),
	}
}

// failure returns the first failure of a rank, or nil. It is a session.Fault if a new world can replace the rank:
// others have lost the rank, and it is not rank 0, which is in this process.
func (w *world) failure() error {
	err := w.inbox.err()
	var failed *parallel.RankError
	if w.cfg.Rejoin != nil && errors.As(err, &failed) && failed.Lost && failed.Rank != 0 {
		return &session.Fault{Err: err}
	}
	return err
}

// Close implements session.Ranks. Snapshots read a rank's models, so they end before the rank leaves. After a
// failure, Close aborts the transports before it cancels the context of this process's ranks, so that ranks
// of other processes get the cause.
func (w *world) Close() {
	_ = w.Discard() // the ranks answer nothing after a failure
	for _, r := range w.ranks {
		if remote, ok := r.snapshots.(*remoteSnapshots); ok && w.inbox.err() == nil {
			_ = remote.end(w.life) // an error means that a rank has failed, and then send below fails too
		}
	}
	if err := w.inbox.err(); err != nil {
		for _, t := range w.transports {
			t.Abort(err)
		}
	}
	if w.send(w.ranks, command{Action: leave, Ended: w.ended}) != nil {
		w.cancel()
	}
	w.running.Wait()
	w.cancel()
	for _, t := range w.transports {
		_ = t.Close() // loses nothing: all calls have ended
	}
}

// rank is the trainer's view of one rank.
type rank struct {
	at        parallel.Coord
	params    tensor.Params // tensors of its part of the decoder, which have no memory here
	pieces    tensor.Params // pieces of params whose moments the rank holds
	shape     *model.Config // shape of its part of the decoder
	link      link[command, answer]
	snapshots snapshotReader
	direct    chan answer            // answers that concern no micro-batch, for world.answer
	memory    [npu.NumPurposes]int64 // bytes of its device memory by purpose, after the last update
}

// connect makes the links to all ranks and starts those of this process.
func (w *world) connect(threads int) error {
	ctx := w.life
	mesh := w.cfg.Mesh
	local := w.transports
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
		shape, err := w.shape.Shard(mesh, mesh.Coord(i), w.cfg.Sequence)
		if err != nil {
			return err
		}
		r := &rank{at: mesh.Coord(i), shape: shape, params: shape.Params(), direct: make(chan answer)}
		for _, p := range reduce.Pieces(r.params, mesh, r.at, w.cfg.Zero) {
			r.pieces = append(r.pieces, p.Param)
		}
		w.ranks = append(w.ranks, r)
		if i < len(local) {
			dev, err := w.dev.Fork(threads)
			if err != nil {
				return err
			}
			trainerEnd, rankEnd := newPipe(w.inbox.failed)
			snapshots := newSnapshots(dev)
			r.link = trainerEnd
			r.snapshots = snapshots
			w.running.Go(func() { w.runRank(ctx, dev, local[i], rankEnd, snapshots) })
		} else {
			r.link = wire[command, answer]{commands, i}
			r.snapshots = &remoteSnapshots{group: values, peer: i}
		}
		w.running.Go(func() { w.read(ctx, i, r) })
	}
	return nil
}

// runRank runs a rank of this process and closes its device.
func (w *world) runRank(
	ctx context.Context, dev npu.Device, t parallel.Transport, l pipe[answer, command], s *snapshots,
) {
	var track trace.Track
	if w.cfg.Track != nil {
		track = w.cfg.Track(t.Rank())
	}
	_ = runWorker(ctx, dev, t, l, s, nil, track) // the rank's last answer has the error
	if err := dev.Close(); err != nil {
		w.inbox.fail(fmt.Errorf("rank %d: %w", t.Rank(), err))
	}
}

// read receives a rank's answers until the rank or ctx ends. It adds those of micro-batches to the inbox
// and sends others to r.direct.
func (w *world) read(ctx context.Context, i int, r *rank) {
	for {
		a, err := r.link.recv(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				w.inbox.fail(err)
			}
			return
		case a.Action == leave:
			if a.Fault != nil {
				w.inbox.fail(a.Fault.of(i))
			}
			return
		case a.Action == forward || a.Action == derivative:
			a.rank = i
			w.inbox.add(a)
		default:
			select {
			case r.direct <- a:
			case <-w.inbox.failed: // no call waits any more
			case <-ctx.Done():
				return
			}
		}
	}
}

// send sends a command to ranks. It fails only if a rank has failed. It takes no context: if that ended, only some
// ranks would have the command.
func (w *world) send(to []*rank, c command) error {
	for _, r := range to {
		if err := w.failure(); err != nil {
			return err
		}
		if err := r.link.send(context.Background(), c); err != nil {
			w.inbox.fail(err) // has no effect if err follows from an earlier failure
			return w.failure()
		}
	}
	return nil
}

// answer waits for a rank's answer to a command with the action to. It takes no context, because every rank
// answers or fails, and the next command would receive an answer that this call had left.
func (w *world) answer(r *rank, to action) (answer, error) {
	select {
	case a := <-r.direct:
		if a.Action != to {
			w.inbox.fail(fmt.Errorf("rank answers command %d, expected %d", a.Action, to))
			return a, w.failure()
		}
		return a, nil
	case <-w.inbox.failed:
		return answer{}, w.failure()
	}
}

// barrier waits until all ranks have run all earlier commands.
func (w *world) barrier() error {
	if err := w.send(w.ranks, command{Action: barrier}); err != nil {
		return err
	}
	for _, r := range w.ranks {
		if _, err := w.answer(r, barrier); err != nil {
			return err
		}
	}
	return nil
}

// replica returns the ranks of a replica.
func (w *world) replica(i int) (all []*rank) {
	for _, r := range w.ranks {
		if r.at.DP == i {
			all = append(all, r)
		}
	}
	return all
}

// lastStage returns the ranks of a replica's last stage.
func (w *world) lastStage(replica int) []*rank {
	return slices.DeleteFunc(w.replica(replica), func(r *rank) bool { return !r.shape.Last() })
}
