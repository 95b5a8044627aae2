// Package lend lets the trainer read the weights of a rank while the rank trains: published versions,
// and copies of weights and moments for a checkpoint.
package lend

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

// Published is the kind of values that belong to a version. Other kinds are indices of Shelf.Save's
// copies.
const Published = -1

// Query names a parameter of a rank. Version is that of the weights or, of other kinds, the number of
// the checkpoint.
type Query struct {
	Kind    int
	Version int64
	Param   int
}

// Lender lends the values of a rank.
type Lender interface {
	// Lend calls use with the row-major values of a parameter, which are overwritten after it
	// returns.
	Lend(ctx context.Context, q Query, use func(values []float32)) error
	// Release frees the copies for the checkpoint of this number, unless later ones have replaced them.
	Release(ctx context.Context, number int64) error
}

// Shelf is a rank's lender in its own process. Any goroutine may use it.
type Shelf struct {
	mu     sync.Mutex
	dev    npu.Device // the rank's
	queue  npu.Device // reads versions beside it; nil before the first read
	models *trimodel.Set
	buffer []float32
	number int64         // of the checkpoint that saved is for
	saved  [][][]float32 // by kind and parameter
}

// NewShelf returns the shelf of a rank that has no models yet.
func NewShelf(dev npu.Device) *Shelf { return &Shelf{dev: dev} }

// Open sets the rank's models.
func (s *Shelf) Open(models *trimodel.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = models
}

// Hold has the models copy their policy as a version, over the version before the last one.
func (s *Shelf) Hold(version int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.models.Hold(version); err != nil {
		return err
	}
	return s.dev.Sync()
}

// HoldSampled calls the models' method of this name.
func (s *Shelf) HoldSampled(steps int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.models.HoldSampled(steps)
}

// Saved selects parameters to copy for a checkpoint.
type Saved struct {
	Weights *model.Weights
	Lends   func(p *tensor.Param) bool // false if another rank lends it
}

// Save copies weights to host memory for the checkpoint of this number, in place of earlier copies.
func (s *Shelf) Save(number int64, kinds []Saved) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number, s.saved = number, make([][][]float32, len(kinds))
	for kind, k := range kinds {
		all := make([][]float32, len(k.Weights.Params))
		for i := range all {
			p := &k.Weights.Params[i]
			if !k.Lends(p) {
				continue
			}
			all[i] = make([]float32, p.Shape().Values())
			if err := k.Weights.Read(i, all[i]); err != nil {
				return err
			}
		}
		s.saved[kind] = all
	}
	return nil
}

// Release implements Lender.
func (s *Shelf) Release(_ context.Context, number int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == number {
		s.saved = nil
	}
	return nil
}

// Lend implements Lender.
func (s *Shelf) Lend(_ context.Context, q Query, use func(values []float32)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Kind != Published {
		if q.Version != s.number || q.Kind < 0 || q.Kind >= len(s.saved) || q.Param < 0 || q.Param >= len(s.saved[q.Kind]) || s.saved[q.Kind][q.Param] == nil {
			return errors.New("the copy for a checkpoint is gone")
		}
		use(s.saved[q.Kind][q.Param])
		return nil
	}
	var w *model.Weights
	if s.models != nil {
		w = trimodel.Version(s.models, q.Version)
	}
	if w == nil || q.Param < 0 || q.Param >= len(w.Params) {
		return fmt.Errorf("version %d is no longer published", q.Version)
	}
	if s.queue == nil {
		queue, err := s.dev.Fork(1)
		if err != nil {
			return err
		}
		s.queue = queue
	}
	s.buffer = room(s.buffer, w.Params[q.Param].Shape().Values())
	if err := w.Through(s.queue).Read(q.Param, s.buffer); err != nil {
		return err
	}
	use(s.buffer)
	return nil
}

// Close ends reading. The models must be open until it returns.
func (s *Shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models, s.saved = nil, nil
	if s.queue == nil {
		return nil
	}
	return s.queue.Close()
}

// room returns memory for n values, that of values if they fit.
func room(values []float32, n int) []float32 { return slices.Grow(values[:0], n)[:n] }
