// Package sharded keeps policy, old policy and reference on the ranks of a mesh.
//
// Each rank holds a part of the models, a trimodel.Set, and works in a goroutine of its own or
// in another process. The trainer's goroutine sends micro-batches to replicas as they become
// free and computes the loss. Server connections and the checkpoint writer read weights from the
// ranks through package lend.
//
// Weights, moments and log-probabilities have the bits of one rank: see packages model/carry, npu
// and parallel/pipeline.
package sharded

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded/lend"
)

// Config sets how ranks hold the models.
type Config struct {
	Mesh   parallel.Mesh
	Models trimodel.Config
	// Reduce adds the partial sums of tensor ranks with an ordinary all-reduce instead of handing
	// sums on. The bits then depend on the mesh.
	Reduce bool
	// Zero is the ZeRO stage (Rajbhandari et al. 2020): from 1 on, each replica keeps the moments
	// of a part of its weights, which it updates for all replicas; from 2 on, also only the sums of
	// that part's gradients in layers.
	Zero int
	// Sequence divides the rows of the residual stream among tensor ranks, between leaves.
	Sequence bool
	// Whole keeps two published versions of the whole weights in this process, for engines that
	// sample from them.
	Whole bool
	// Canary is a prompt with which servers are verified, if Whole is not set; see Models.Canary.
	Canary []int32
	// Track returns the trace row of a rank in this process.
	Track func(rank int) trace.Track
}

// Models drives the ranks of a mesh. Only one goroutine may use it; others may read published
// versions and write checkpoints.
type Models struct {
	backend.Serial // for LeafRows
	*crew

	batch   []*batch          // micro-batches in flight, in order
	sent    []load            // of each replica
	whole   [2]*model.Weights // published versions, with Config.Whole
	current *model.Weights    // of the last Publish
	finite  error             // of the last Step
	ended   ending
	saves   int64 // the number of the last checkpoint
}

// Errors of Follow if rank 0's run does not end.
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

// err returns Follow's error.
func (e ending) err() error {
	return [...]error{endedFailed: ErrFailed, endedComplete: nil, endedStopped: ErrStopped}[e]
}

// New distributes a decoder's starting weights and allocates what training needs beside them. The
// function each yields the weights tensor by tensor. It takes ownership of ends, the transports of the ranks in this
// process: of all, or of rank 0 alone, if Follow runs the others. Each rank in this process gets
// a fork of dev with the given number of threads, 0 for all.
func New(ctx context.Context, dev npu.Device, shape *model.Config, each func(source.Use) error, cfg Config, ends []parallel.Transport, threads int) (*Models, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &Models{crew: &crew{cfg: cfg, shape: shape, dev: dev, ends: ends, life: life, cancel: cancel}, sent: make([]load, cfg.Mesh.DP)}
	m.mail.ready, m.mail.broken = make(chan struct{}, 1), make(chan struct{})
	err := m.start(threads)
	if err == nil {
		err = m.setUp(life, each)
	}
	if err != nil {
		m.fail(err)
		m.Close()
		return nil, m.err()
	}
	return m, nil
}

// Start returns the checksum of the starting weights.
func (c *crew) Start() string { return c.began }

// Follow runs a rank whose trainer is in the process of rank 0, until the trainer ends. Its error is
// ErrStopped or ErrFailed if rank 0's run does not end.
func Follow(ctx context.Context, dev npu.Device, end parallel.Transport, track trace.Track) error {
	group, err := groupOfAll(end, "trainer")
	if err != nil {
		return err
	}
	values, err := groupOfAll(end, "values")
	if err != nil {
		return err
	}
	err = serve(ctx, dev, end, wire[answer, command]{group, 0}, lend.NewShelf(dev), values, track)
	return errors.Join(err, end.Close())
}

// End says how the run ended: it is complete, or stopped before that. Without a call it has failed.
// Followers learn it when the models are closed.
func (m *Models) End(stopped bool) {
	m.ended = endedComplete
	if stopped {
		m.ended = endedStopped
	}
}

// Close ends all ranks and frees everything. Nobody may be reading published weights or writing a
// checkpoint.
func (m *Models) Close() {
	m.Discard()
	for _, r := range m.ranks {
		if f, ok := r.shelf.(*lend.Far); ok && m.err() == nil {
			_ = f.End(m.life) // a rank that has failed needs no message
		}
	}
	if err := m.err(); err != nil {
		for _, end := range m.ends {
			end.Abort(err) // before the ranks of this process report that their context has ended
		}
	}
	if m.tell(context.Background(), m.ranks, command{Action: leave, Ended: m.ended}) != nil {
		m.cancel()
	}
	m.work.Wait()
	m.cancel()
	for _, end := range m.ends {
		_ = end.Close() // its calls have ended
	}
	for _, w := range m.whole {
		if w != nil {
			w.Free()
		}
	}
}

// SetTrack does nothing: ranks have tracks of their own.
func (m *Models) SetTrack(trace.Track) {}

// MaxPositions returns the maximum length of a sequence.
func (m *Models) MaxPositions() int { return m.shape.MaxPositions }

// FLOPs returns the number of operations of the policy's forward and backward pass over a layout.
func (m *Models) FLOPs(l *attention.Layout) float64 { return m.shape.TrainFLOPs(l) }

// Allocated returns the device memory of this process's device and of all ranks after their last
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

var _ backend.Models = (*Models)(nil)
