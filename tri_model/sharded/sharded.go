// Package sharded keeps policy, old policy and reference on the ranks of a mesh.
//
// Each rank holds a part of the models, a trimodel.Set, and works in a goroutine of its own or
// in another process. The trainer's goroutine sends micro-batches to replicas as they become
// free, computes the loss, and gathers the weights of the instances and of checkpoints. Weights,
// moments and log-probabilities have the bits of one rank: see packages model/carry, npu and
// parallel/pipeline.
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

// Models drives the ranks of a mesh. Only one goroutine may use it.
type Models struct {
	backend.Serial // for LeafRows
	*crew

	batch   []*batch          // micro-batches in flight, in order
	sent    []load            // of each replica
	whole   [2]*model.Weights // published versions, with Config.Whole
	current *model.Weights    // of the last Publish
	finite  error             // of the last Step
	stopped bool
}

// ErrStopped is Follow's error if rank 0 has stopped before the end of its run.
var ErrStopped = errors.New("rank 0 has stopped the run")

// New distributes a decoder's starting weights, which each passes on tensor by tensor, and allocates
// what training needs beside them. It takes ownership of ends, the transports of the ranks in this
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
// ErrStopped if Models.Stop was called.
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

// Stop makes Close tell ranks in other processes that the run is not complete.
func (m *Models) Stop() { m.stopped = true }

// Close ends all ranks and frees everything. No instance may be reading published weights.
func (m *Models) Close() {
	m.Discard()
	for _, r := range m.ranks {
		if f, ok := r.shelf.(*lend.Far); ok && m.err() == nil {
			_ = f.End(m.life) // a rank that has failed needs no message
		}
	}
	if m.tell(context.Background(), m.ranks, command{Action: leave, Stopped: m.stopped}) != nil {
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
