// Package sharded keeps policy, old policy and reference on the ranks of a mesh.
//
// Each rank holds a part of the models, a trimodel.Set. Models is the trainer's side: it sends
// commands to the ranks and computes the loss. A worker is the rank's side: it runs its part of a
// pass when package parallel/pipeline says so. Workers run in this process or in others; a link
// connects each one with the trainer.
//
// # Goroutines
//
// One goroutine, the trainer's, calls the methods of Models. One goroutine for each rank reads the
// rank's answers (world.read). A worker has one goroutine that makes all calls to its device and
// sends all its answers. Its helper goroutines only receive. Other goroutines read published versions
// and copies for checkpoints, through snapshots, while the ranks train.
//
// A worker never waits long for the trainer: answers of micro-batches go to an unbounded inbox, and
// the trainer takes all other answers before it sends anything else. So the trainer may wait for a
// worker without a deadlock.
//
// # Order
//
// A rank gets commands in the order in which the trainer sends them. It runs a command that concerns
// no micro-batch only when all earlier micro-batches have ended. The trainer waits for an answer to such
// a command, or for a barrier after it, before it sends the next micro-batch, so no micro-batch overtakes
// the command.
//
// # Bits
//
// Weights, moments and log-probabilities are bit-identical to those of one rank. Float sums over
// tensor ranks are added one rank after another, in rank order (package model/carry). Sums of
// gradients are 64-bit integers, whose order does not matter (package npu, package reduce). So
// neither the replica that gets a micro-batch nor the order in which micro-batches end changes a bit.
//
// # Failures
//
// The first failure of a rank ends all ranks of its world. If other ranks have lost a rank other than 0, for
// example because its process was killed, and Config.Rejoin is set, Models opens a new world, distributes the
// recovery point and repeats the work since then (package backend/session). Bits do not change, because kernels
// are exact. Any other failure, such as that of a device, would most likely happen again: Models ends the
// trainer's waits and returns it from every later call.
package sharded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Config sets how ranks hold the models.
type Config struct {
	Mesh   parallel.Mesh
	Models trimodel.Config
	// Reduce adds the partial sums of tensor ranks with an ordinary all-reduce instead of one chain.
	// The bits then depend on the mesh.
	Reduce bool
	// Zero is the ZeRO stage (Rajbhandari et al. 2020). With 1, each replica keeps the moments of only
	// a part of its weights, which it updates for all replicas. With 2, it also keeps the sums of layers'
	// gradients of only that part.
	Zero int
	// Sequence divides the rows of the residual stream among tensor ranks (model.Config.Shard).
	Sequence bool
	// Whole keeps the complete weights of each published version in this process, for engines that
	// sample from them.
	Whole bool
	// Canary is a prompt for verifying servers (see Models.Canary). It is empty with Whole.
	Canary []int32
	// Track returns the trace row of a rank in this process. It may be nil.
	Track func(rank int) trace.Track

	// Rejoin waits until all ranks of a new world have joined and returns rank 0's transport. Models calls it on
	// the trainer's goroutine after other ranks have lost a rank, when it has closed the last world's transport. If
	// Rejoin is nil, every failure ends the run.
	Rejoin func(ctx context.Context) (parallel.Transport, error)
	// Recovery is the folder of recovery points, which Models owns. It is required with Rejoin.
	Recovery string
	Warn     func(format string, args ...any) // reports failures after which the run continues; required with Rejoin
}

// Models drives the ranks of a mesh and implements backend.Models. Only one goroutine may use it. Others may read
// published versions and call the functions that Capture returns.
type Models struct {
	*session.Session[*world]

	cfg      Config
	shape    *model.Config // shape of the complete decoder
	dev      npu.Device
	threads  int                    // of each rank in this process; 0 for all
	each     func(source.Use) error // calls its argument with each starting weight
	first    []parallel.Transport   // of the first world; nil once it has started
	opened   *world                 // the last world whose transport was opened; nil before the first
	world    atomic.Pointer[world]  // the last world that held a recovery point, for goroutines that read it
	startSum string                 // checksum of the starting weights
	canary   *canary.Recorded
	whole    *model.Versions // published versions of the complete weights, with Config.Whole

	held      session.Mark // end of the log just before the last Publish added its entry
	fresh     bool         // whether the policy equals the last published version
	publishes bool         // whether Publish was called
	kept      session.Mark // of the last recovery point that the session took

	saves   int64                    // number of captures so far, which is the number of the last one
	last    *capture                 // the last capture; nil before the first
	writing conc.WaitGroup           // goroutines that write recovery points
	written atomic.Pointer[recovery] // the last written recovery point; nil once the session has it
}

// Errors of Follow if rank 0's run is not complete.
var (
	ErrStopped = errors.New("rank 0 has stopped the run")
	ErrFailed  = errors.New("the run has failed; rank 0 says why")
)

// ending is how a run ended.
type ending uint8

const (
	endedFailed ending = iota
	endedComplete
	endedStopped
)

// err returns the error that Follow returns after this ending.
func (e ending) err() error {
	return [...]error{endedFailed: ErrFailed, endedComplete: nil, endedStopped: ErrStopped}[e]
}

// New distributes a decoder's starting weights and allocates everything else that training needs. each calls its
// argument with the weights, tensor by tensor; Models calls it again for a new world. transports are those of the
// ranks in this process: all ranks, or only rank 0 if Follow runs the others in their processes. New takes
// ownership of them. Each rank in this process gets a fork of dev with the given number of threads, 0 for all.
// The models live until Close, even if ctx ends before.
func New(
	ctx context.Context, dev npu.Device, shape *model.Config, each func(source.Use) error, cfg Config,
	transports []parallel.Transport, threads int,
) (*Models, error) {
	m := &Models{
		cfg: cfg, shape: shape, dev: dev, threads: threads, each: each, first: transports,
		whole: model.NewVersions(cfg.Models.Versions, nil, func() (*model.Weights, error) {
			return model.NewWeights(dev, shape, npu.Weights)
		}),
	}
	sc := session.Config[*world]{
		Start: m.start, How: "waiting for all ranks to join again", Depth: cfg.Mesh.PP + 1,
		Plan: func(depth int) schedule.Plan { return schedule.New(cfg.Mesh.DP, depth, false) },
		Warn: cfg.Warn,
	}
	if cfg.Rejoin != nil {
		sc.Folder = cfg.Recovery
	}
	m.Session = session.New(sc)
	lost := func(err error) bool { return errors.As(err, new(*session.Fault)) }
	if err := m.Open(ctx, lost); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// start implements session.Config.Start: it connects the ranks of a world and makes them load a recovery point.
func (m *Models) start(ctx context.Context, from session.Point) (_ *world, err error) {
	transports := m.first
	m.first = nil
	if m.opened != nil {
		if transports, err = m.rejoin(ctx, m.opened); err != nil {
			return nil, err
		}
	}
	w := newWorld(ctx, &m.cfg, m.shape, m.dev, transports, m.Notify)
	m.opened = w
	if err = w.connect(m.threads); err == nil {
		err = m.setUp(w)
	}
	if err == nil && from.Folder != "" {
		err = w.restore(from)
	}
	if err != nil {
		w.inbox.fail(err)
		w.Close()
		return nil, w.failure()
	}
	m.world.Store(w)
	return w, nil
}

// rejoin returns the transport of the world after last. It returns the failure of last if that ends the run.
func (m *Models) rejoin(ctx context.Context, last *world) ([]parallel.Transport, error) {
	if err := last.failure(); !errors.As(err, new(*session.Fault)) {
		return nil, err
	}
	t, err := m.cfg.Rejoin(ctx)
	return []parallel.Transport{t}, err
}

// setUp sends the ranks their parts' shapes and distributes the starting weights.
func (m *Models) setUp(w *world) error {
	setup := &Setup{
		Mesh: m.cfg.Mesh, Shape: *m.shape, Models: m.cfg.Models,
		Reduce: m.cfg.Reduce, Zero: m.cfg.Zero, Sequence: m.cfg.Sequence,
	}
	if err := w.send(w.ranks, command{Action: setUp, Setup: setup}); err != nil {
		return err
	}
	if len(m.cfg.Canary) > 0 && m.canary == nil {
		if err := m.recordPerturbed(w); err != nil {
			return fmt.Errorf("perturbed weights: %w", err)
		}
	}
	names := []trimodel.Tensors{{Role: backend.Policy}}
	if m.cfg.Models.Reference {
		names = append(names, trimodel.Tensors{Role: backend.Reference})
	}
	uses := []source.Use{w.scatter(names...)}
	if m.cfg.Models.Numerics.Type() != npu.Float32 {
		uses = append(uses, w.scatter(trimodel.Tensors{Role: backend.Policy, Kind: trimodel.Master}))
	}
	sums := m.shape.Params().Sums()
	err := m.each(func(i int, p *tensor.Param, values []float32) error {
		if err := p.Sum(values, sums[p.Name], npu.Threads(m.dev)); err != nil {
			return err
		}
		for _, use := range uses {
			if err := use(i, p, values); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if m.startSum == "" {
		m.startSum = sums.Total()
	}
	if sums.Total() != m.startSum {
		return fmt.Errorf("checksum of the starting weights is %s, expected %s as before", sums.Total(), m.startSum)
	}
	return w.barrier()
}

// StartChecksum returns the checksum of the starting weights.
func (m *Models) StartChecksum() string { return m.startSum }

// End records how the run ends: stopped early, or complete. Close sends that to the ranks of other processes.
// Without End, their Follow returns ErrFailed.
func (m *Models) End(stopped bool) {
	w := m.Current()
	if w == nil {
		return
	}
	w.ended = endedComplete
	if stopped {
		w.ended = endedStopped
	}
}

// Close ends all ranks and frees everything. No other goroutine may be reading a published version or writing a
// checkpoint.
func (m *Models) Close() {
	m.Session.Close()
	m.writing.Wait()
	m.whole.Free()
}

// Lanes returns the number of stages of all replicas together.
func (m *Models) Lanes() int { return m.cfg.Mesh.DP * m.cfg.Mesh.PP }

// LeafRows returns attention.LeafRows: gradients are summed leaf by leaf.
func (m *Models) LeafRows(prompt int) int { return attention.LeafRows(m.cfg.Models.Numerics, prompt) }

// SetTrack does nothing: ranks have tracks of their own.
func (m *Models) SetTrack(trace.Track) {}

// MaxPositions returns the maximum length of a sequence.
func (m *Models) MaxPositions() int { return m.shape.MaxPositions }

// FLOPs returns the number of floating-point operations of the policy's forward and backward pass over a
// layout.
func (m *Models) FLOPs(l *attention.Layout) float64 { return m.shape.TrainFLOPs(l) }

// Allocated returns the memory of this process's device and of all ranks' devices after their last
// update, in bytes, by purpose.
func (m *Models) Allocated() [npu.NumPurposes]int64 {
	sum := m.dev.Allocated()
	for _, r := range m.world.Load().ranks {
		for i, n := range r.memory {
			sum[i] += n
		}
	}
	return sum
}

// SwapOut implements backend.Swapper for all ranks. If a rank cannot swap, SwapOut returns its error, but no rank
// ends, because all values can still be read.
func (m *Models) SwapOut(ctx context.Context) error { return m.swap(ctx, swapOut) }

// SwapIn implements backend.Swapper.
func (m *Models) SwapIn(ctx context.Context) error { return m.swap(ctx, swapIn) }

func (m *Models) swap(ctx context.Context, direction action) error {
	return m.Do(ctx, func(_ context.Context, w *world) error { return w.swap(direction) })
}

var (
	_ backend.Models  = (*Models)(nil)
	_ backend.Swapper = (*Models)(nil)
)
