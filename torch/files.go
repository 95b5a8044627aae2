package torch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/torch/wire"
)

// Write makes the ranks write the policy to an existing folder: model.safetensors for
// wire.Weights, an adapter folder for wire.Adapter. The policy then counts as published.
func (s *Session) Write(ctx context.Context, what, folder string) error {
	if err := s.write(ctx, what, func() (string, error) { return folder, nil }); err != nil {
		return fmt.Errorf("write %s to %s: %w", what, folder, err)
	}
	s.fresh = true
	return nil
}

// write makes the ranks write to the folder that makeFolder returns. It calls makeFolder for each
// attempt. Cancelling ctx does not interrupt the ranks.
func (s *Session) write(ctx context.Context, what string, makeFolder func() (string, error)) error {
	return s.Attempt(ctx, func(g *group) error {
		folder, err := makeFolder()
		if err == nil {
			err = absolute(&folder)
		}
		if err != nil {
			return err
		}
		ctx := context.WithoutCancel(ctx)
		m := wire.Write{What: what, Folder: folder}
		decode := func(_ *rank, f *wire.Frame) error { return f.Decode(&wire.Written{}) }
		return g.exchange(ctx, m, "write "+what, s.cfg.Deadlines.File, decode)
	})
}

// savePoint writes a recovery point.
func (s *Session) savePoint(ctx context.Context) error {
	var folder string
	err := s.write(ctx, wire.State, func() (_ string, err error) {
		folder, err = s.NewFolder()
		return folder, err
	})
	if err == nil {
		err = s.Advance(s.Now(), session.Point{Folder: folder, Updates: s.Updates(), Own: true})
	}
	if err != nil {
		return fmt.Errorf("write recovery point of update %d: %w", s.Updates(), err)
	}
	return nil
}

// Capture writes the policy and the optimizer's state as a recovery point, unless the last
// recovery point already holds them, and copies its files. It returns a function that moves the copy to
// an existing folder. Training may continue before and while move runs.
func (s *Session) Capture(ctx context.Context) (move func(dir string) error, err error) {
	if !s.Point().Own || s.Kept() > 0 {
		if err := s.savePoint(ctx); err != nil {
			return nil, err
		}
	}
	copied, err := s.NewFolder()
	if err == nil {
		err = session.CopyTree(copied, s.Point().Folder)
	}
	if err != nil {
		return nil, fmt.Errorf("keep recovery point: %w", err)
	}
	return func(dir string) error {
		err := session.CopyTree(dir, copied)
		return errors.Join(err, os.RemoveAll(copied))
	}, nil
}

// Restore makes the ranks load a checkpoint folder that was written after the given number of
// updates. It does nothing if the ranks started from that folder.
func (s *Session) Restore(ctx context.Context, dir string, updates int) error {
	err := absolute(&dir)
	to := session.Point{Folder: dir, Updates: updates}
	if err == nil && (s.Point() != to || s.Kept() > 0) {
		s.Drop()
		if err = s.Reset(to); err == nil {
			err = s.Attempt(ctx, func(*group) error { return nil })
		}
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", dir, err)
	}
	return nil
}

// MaxPositions returns the maximum length of a sequence. It is math.MaxInt32 if the model sets
// no limit.
func (s *Session) MaxPositions() int { return cmp.Or(s.info.MaxPositions, math.MaxInt32) }

// FLOPs returns the number of floating-point operations of a forward and backward pass over l.
func (s *Session) FLOPs(l *attention.Layout) float64 {
	cost := s.info.FLOPs
	pairs := 0.0                             // pairs of a query row and a key that it attends to
	ends := make([]float64, len(l.Segments)) // length of the sequence at the end of each segment
	for i, segment := range l.Segments {
		before := 0.0
		if segment.Parent >= 0 {
			before = ends[segment.Parent]
		}
		n := float64(segment.Len)
		ends[i] = before + n
		pairs += float64(n*before) + float64(n*(n+1)/2) // conversions forbid fusing, which would change bits
	}
	rows := float64(cost.Row * float64(l.Rows()))
	targets := float64(cost.Target * float64(len(l.Targets)))
	return rows + targets + float64(cost.Key*pairs)
}

// Allocated returns the device memory that all ranks together hold, in bytes, by purpose.
func (s *Session) Allocated() [npu.NumPurposes]int64 {
	var sum [npu.NumPurposes]int64
	for _, m := range s.memory {
		sum[npu.Weights] += m.Weights
		sum[npu.Gradients] += m.Gradients
		sum[npu.Optimizer] += m.Optimizer
		sum[npu.Activations] += m.Activations
	}
	return sum
}
