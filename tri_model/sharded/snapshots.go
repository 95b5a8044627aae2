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
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// published is the value of query.which for a published version.
const published = -1

// query names a parameter of a rank's snapshots.
type query struct {
	which  int   // published, or an index of the tensors in a checkpoint (trimodel.Config.Stored)
	number int64 // number of the version or of the checkpoint
	param  int   // index among the rank's parameters or, for moments, pieces
}

// snapshotReader reads a rank's snapshots, from any goroutine.
type snapshotReader interface {
	// read calls use with the row-major values of a parameter. use must not keep them, because they are
	// overwritten after it returns.
	read(ctx context.Context, q query, use func(values []float32)) error
	// release frees the copies for the checkpoint with this number, unless those for a later checkpoint
	// have replaced them.
	release(ctx context.Context, number int64) error
}

// snapshots holds the values that the trainer reads from a rank while the rank trains: published versions,
// and copies of weights and moments for a checkpoint. Any goroutine of the rank's process may call read
// and release. Only the rank's own goroutine calls the other methods.
//
// mu excludes read from the commands that replace the values that it reads, hold and save. read holds mu
// while use runs, so use must not wait for the rank.
//
// The rank's goroutine uses its device without mu, so read uses a queue of its own. That is safe because
// only hold changes a version, and hold waits for the device before it releases mu. Restoring a checkpoint
// also fills a version, but in a world that is not read yet, or before the first Publish.
type snapshots struct {
	mu     sync.Mutex
	dev    npu.Device    // the rank's device
	queue  npu.Device    // fork of dev with which read reads versions; nil before the first read
	models *trimodel.Set // nil before open and after close
	buffer []float32     // values of the version's parameter that read passes to use
	number int64         // number of the checkpoint that saved is for
	saved  [][][]float32 // copies by query.which and parameter; nil for parameters that the rank does not own
}

// newSnapshots returns the snapshots of a rank that has no models yet.
func newSnapshots(dev npu.Device) *snapshots { return &snapshots{dev: dev} }

// open sets the rank's models.
func (s *snapshots) open(models *trimodel.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = models
}

// hold copies the policy as a version (see trimodel.Set.Hold) and waits for the copy.
func (s *snapshots) hold(version int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.models.Hold(version); err != nil {
		return err
	}
	return s.dev.Sync()
}

// holdSampled calls HoldSampled of the models.
func (s *snapshots) holdSampled(steps int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.models.HoldSampled(steps)
}

// ownedTensors are the parameters of tensors for which owns returns true.
type ownedTensors struct {
	tensors *model.Weights
	owns    func(p *tensor.Param) bool
}

// save copies all to host memory for the checkpoint with this number. The copies replace earlier ones.
func (s *snapshots) save(number int64, all []ownedTensors) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number = number
	s.saved = make([][][]float32, len(all))
	for which, o := range all {
		copies := make([][]float32, len(o.tensors.Params))
		for i := range copies {
			p := &o.tensors.Params[i]
			if !o.owns(p) {
				continue
			}
			copies[i] = make([]float32, p.Shape().Values())
			if err := o.tensors.Read(i, copies[i]); err != nil {
				return err
			}
		}
		s.saved[which] = copies
	}
	return nil
}

// release implements snapshotReader.
func (s *snapshots) release(_ context.Context, number int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == number {
		s.saved = nil
	}
	return nil
}

// read implements snapshotReader.
func (s *snapshots) read(_ context.Context, q query, use func(values []float32)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.which != published {
		values := s.copyOf(q)
		if values == nil {
			return errors.New("the copy for a checkpoint is gone")
		}
		use(values)
		return nil
	}
	var w *model.Weights
	if s.models != nil {
		w = s.models.Version(q.number)
	}
	if w == nil || q.param < 0 || q.param >= len(w.Params) {
		return fmt.Errorf("version %d is no longer published", q.number)
	}
	if s.queue == nil {
		queue, err := s.dev.Fork(1)
		if err != nil {
			return err
		}
		s.queue = queue
	}
	s.buffer = resize(s.buffer, w.Params[q.param].Shape().Values())
	if err := w.Through(s.queue).Read(q.param, s.buffer); err != nil {
		return err
	}
	use(s.buffer)
	return nil
}

// copyOf returns the copy of a parameter, or nil. The caller holds mu.
func (s *snapshots) copyOf(q query) []float32 {
	if q.number != s.number || q.which < 0 || q.which >= len(s.saved) {
		return nil
	}
	if copies := s.saved[q.which]; q.param >= 0 && q.param < len(copies) {
		return copies[q.param]
	}
	return nil
}

// close makes later reads fail and frees the copies. The caller closes the models only afterwards.
func (s *snapshots) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = nil
	s.saved = nil
	if s.queue == nil {
		return nil
	}
	return s.queue.Close()
}

// resize returns a slice of n values with arbitrary content. It uses the memory of values if that is
// large enough.
func resize(values []float32, n int) []float32 { return slices.Grow(values[:0], n)[:n] }
