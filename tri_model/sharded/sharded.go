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
// rank's answers (Models.read). A worker has one goroutine that makes all calls to its device and
// sends all its answers. Its helper goroutines only receive. Other goroutines read published versions
// and checkpoints, through snapshots, while the ranks train.
//
// A worker never waits long for the trainer: answers of micro-batches go to an unbounded inbox, and
// the trainer takes all other answers before it sends anything else. So the trainer may wait for a
// worker without a deadlock.
//
// # Order
//
// A rank gets commands in the order in which the trainer sends them. Only after all
// earlier micro-batches have ended does it run a command that concerns none. The trainer waits for an
// answer to such a command, or for a barrier after it, before it sends the next micro-batch, so no
// micro-batch overtakes such a command.
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
// The first failure of a rank ends all ranks. Models records it, ends the trainer's waits, and
// returns it from every later call. Nothing is retried: a run continues from its last checkpoint.
package sharded

import (
	"context"
	"errors"
	"fmt"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
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
	// Whole keeps the published versions of the complete weights in this process, for engines that
	// sample from them.
	Whole bool
	// Canary is a prompt with which servers are verified, if Whole is not set; see Models.Canary.
	Canary []int32
	// Track returns the trace row of a rank in this process. It may be nil.
	Track func(rank int) trace.Track
}

// Models drives the ranks of a mesh. Only one goroutine may use it; others may read published
// versions and write checkpoints.
type Models struct {
	backend.Serial // for LeafRows

	cfg        Config
	shape      *model.Config // shape of the complete decoder
	dev        npu.Device
	transports []parallel.Transport // transports of the ranks in this process
	ranks      []*rank              // all ranks of the mesh
	life       context.Context      //nolint:containedctx // from New to Close
	cancel     context.CancelFunc   // ends life
	running    conc.WaitGroup       // ranks of this process, and readers of all ranks' answers
	inbox      inbox
	startSum   string // checksum of the starting weights
	canary     *canary.Recorded

	batches   []*batch        // micro-batches in flight, in the order of Pass
	loads     []load          // micro-batches in flight by replica
	whole     *model.Versions // published versions of the complete weights, with Config.Whole
	finiteErr error           // result of CheckFinite after the last Step
	ended     ending
	saves     int64 // number of checkpoints so far, which is the number of the last one
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

// New distributes a decoder's starting weights and allocates everything else that training needs. each
// calls its argument with the weights, tensor by tensor. transports are those of the ranks in this
// process: of all ranks, or only of rank 0, if Follow runs the others in their processes. New takes
// ownership of them. Each rank in this process gets a fork of dev with the given number of threads, 0 for
// all. The models live until Close, also after the end of ctx.
func New(
	ctx context.Context, dev npu.Device, shape *model.Config, each func(source.Use) error, cfg Config,
	transports []parallel.Transport, threads int,
) (*Models, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &Models{
		cfg: cfg, shape: shape, dev: dev, transports: transports, life: life, cancel: cancel,
		inbox: newInbox(), loads: make([]load, cfg.Mesh.DP),
		whole: model.NewVersions(cfg.Models.Versions, nil, func() (*model.Weights, error) {
			return model.NewWeights(dev, shape, npu.Weights)
		}),
	}
	err := m.connect(threads)
	if err == nil {
		err = m.setUp(life, each)
	}
	if err != nil {
		m.inbox.fail(err)
		m.Close()
		return nil, m.inbox.err()
	}
	return m, nil
}

// setUp sends the ranks their parts' shapes and distributes the starting weights.
func (m *Models) setUp(ctx context.Context, each func(source.Use) error) error {
	setup := &Setup{
		Mesh: m.cfg.Mesh, Shape: *m.shape, Models: m.cfg.Models,
		Reduce: m.cfg.Reduce, Zero: m.cfg.Zero, Sequence: m.cfg.Sequence,
	}
	if err := m.send(ctx, m.ranks, command{Action: setUp, Setup: setup}); err != nil {
		return err
	}
	if len(m.cfg.Canary) > 0 {
		if err := m.recordPerturbed(ctx); err != nil {
			return fmt.Errorf("perturbed weights: %w", err)
		}
	}
	names := []trimodel.Tensors{{Role: backend.Policy}}
	if m.cfg.Models.Reference {
		names = append(names, trimodel.Tensors{Role: backend.Reference})
	}
	scatter := m.scatter(ctx, names...)
	sums := m.shape.Params().Sums()
	err := each(func(i int, p *tensor.Param, values []float32) error {
		if err := p.Sum(values, sums[p.Name], npu.Threads(m.dev)); err != nil {
			return err
		}
		return scatter(i, p, values)
	})
	if err != nil {
		return err
	}
	m.startSum = sums.Total()
	return m.barrier(ctx)
}

// StartChecksum returns the checksum of the starting weights.
func (m *Models) StartChecksum() string { return m.startSum }

// End records that the run was stopped or, otherwise, is complete. Close sends that to the ranks of other
// processes. Without a call of End, they report a failure.
func (m *Models) End(stopped bool) {
	m.ended = endedComplete
	if stopped {
		m.ended = endedStopped
	}
}

// Close ends all ranks and frees everything. No goroutine may be reading published weights or writing a
// checkpoint.
//
// The order matters. Snapshots read a rank's models, so they end before the rank leaves. After a failure
// Close aborts the transports before it cancels the context of this process's ranks, so that ranks of
// other processes get the cause.
func (m *Models) Close() {
	m.Discard()
	for _, r := range m.ranks {
		if remote, ok := r.snapshots.(*remoteSnapshots); ok && m.inbox.err() == nil {
			_ = remote.end(m.life) // an error means that a rank has failed, and then send below fails too
		}
	}
	if err := m.inbox.err(); err != nil {
		for _, t := range m.transports {
			t.Abort(err)
		}
	}
	if m.send(context.Background(), m.ranks, command{Action: leave, Ended: m.ended}) != nil {
		m.cancel()
	}
	m.running.Wait()
	m.cancel()
	for _, t := range m.transports {
		_ = t.Close() // loses nothing: all calls have ended
	}
	m.whole.Free()
}

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
	for _, r := range m.ranks {
		for i, n := range r.memory {
			sum[i] += n
		}
	}
	return sum
}

// SwapOut implements backend.Swapper for all ranks. If a rank cannot swap, SwapOut returns its error,
// but no rank fails: the values can still be read.
func (m *Models) SwapOut(ctx context.Context) error { return m.swap(ctx, swapOut) }

// SwapIn implements backend.Swapper.
func (m *Models) SwapIn(ctx context.Context) error { return m.swap(ctx, swapIn) }

// swap sends swapOut or swapIn and waits for all answers, so that none is left for the next command. If
// several ranks cannot swap, it returns the error of the first.
func (m *Models) swap(ctx context.Context, direction action) error {
	if err := m.send(ctx, m.ranks, command{Action: direction}); err != nil {
		return err
	}
	var failed error
	for i, r := range m.ranks {
		a, err := m.answer(r, direction)
		if err != nil {
			return err
		}
		if a.Fault != nil && failed == nil {
			failed = a.Fault.of(i)
		}
	}
	return failed
}

var (
	_ backend.Models  = (*Models)(nil)
	_ backend.Swapper = (*Models)(nil)
)
