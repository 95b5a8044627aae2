package sharded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// capture is a copy of the ranks' state for a checkpoint. The trainer's goroutine makes ranks copy, and another
// goroutine writes the copies. The session's log holds the call of copy, so that the ranks of a new world
// copy again until the copies are written.
type capture struct {
	number int64           // from 1
	point  session.Point   // recovery point of the copies, without a folder
	mark   session.Mark    // position of the state in the session's log
	over   <-chan struct{} // session.Session.Ended

	mu     sync.Mutex    // guards the fields below
	done   bool          // whether the copies are written, or writing them has failed for good
	world  *world        // world that holds the copies; nil before the first copy
	copied chan struct{} // closed and replaced when a world holds the copies
}

// copy makes the ranks of a world copy the values that they own, unless c is done.
func (c *capture) copy(w *world) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil
	}
	err := w.send(w.ranks, command{Action: save, Version: c.number, Steps: c.point.Steps})
	if err == nil {
		err = w.barrier()
	}
	if err == nil {
		c.world = w
		close(c.copied)
		c.copied = make(chan struct{})
	}
	return err
}

// write writes the copies to a folder, tensor by tensor, and frees them. If a rank is lost, write waits for a
// world that has the copies and begins again. It fails if the session ends first.
func (c *capture) write(dir string) error {
	for {
		c.mu.Lock()
		w, copied := c.world, c.copied
		c.mu.Unlock()
		err := w.write(dir, c.number)
		if err == nil || !errors.As(w.failure(), new(*session.Fault)) {
			c.mu.Lock()
			c.done = true
			c.mu.Unlock()
			w.release(c.number)
			return err
		}
		select {
		case <-copied:
		case <-c.over:
			return err
		}
	}
}

// finished returns done.
func (c *capture) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// write writes the copies of the capture with a number to a folder.
func (w *world) write(dir string, number int64) error {
	models := &w.cfg.Models
	return models.WriteCheckpoint(dir, func(name trimodel.Tensors) []checkpoint.Source {
		which := slices.IndexFunc(models.Stored(), func(s trimodel.Stored) bool { return s.Tensors == name })
		dtype := npu.Float32
		if name.Kind == trimodel.Weights {
			dtype = models.Numerics.Type()
		}
		return w.gatherCopies(which, number).sources(dtype)
	})
}

// release frees the copies of the capture with a number.
func (w *world) release(number int64) {
	for _, r := range w.ranks {
		_ = r.snapshots.release(w.life, number) // an error means that a rank failed; the next call returns it
	}
}

// capture makes each rank copy its part of a checkpoint to host memory: of the values that a checkpoint stores,
// those that it owns (see owns). The copies replace those of an earlier capture.
func (m *Models) capture(ctx context.Context, steps int) (*capture, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	m.saves++
	c := &capture{
		number: m.saves, mark: m.Now(), over: m.Ended(), copied: make(chan struct{}),
		point: session.Point{Steps: steps, Updates: m.Updates(), Own: true},
	}
	if m.fresh { // new ranks must repeat Publish to hold the version
		c.mark = m.held
	}
	m.last = c
	return c, m.Do(ctx, func(_ context.Context, w *world) error { return c.copy(w) })
}

// Capture implements backend.Models. Each rank copies its part to host memory, and write reads the copies tensor by
// tensor and frees them. If a rank is lost meanwhile, write waits until the trainer's goroutine has replaced it, in
// Poll or another call. With Config.Rejoin, the checkpoint also becomes the recovery point.
func (m *Models) Capture(ctx context.Context, steps int) (write func(dir string) error, err error) {
	c, err := m.capture(ctx, steps)
	if err != nil || m.cfg.Rejoin == nil {
		return c.write, err
	}
	folder, err := m.NewFolder()
	return func(dir string) error {
		if err := m.save(c, folder); err != nil {
			return err
		}
		return session.CopyTree(dir, folder)
	}, err
}

// recovery is a recovery point, with its position in the session's log.
type recovery struct {
	mark  session.Mark
	point session.Point
}

// save writes a capture to a folder of the session as a recovery point.
func (m *Models) save(c *capture, folder string) error {
	err := c.write(folder)
	if err == nil {
		at := recovery{c.mark, c.point}
		at.point.Folder = folder
		if last := m.written.Swap(&at); last != nil { // the session has not taken it
			_ = os.RemoveAll(last.point.Folder) // Close removes what is left
		}
	}
	return err
}

// keepPoint makes the last written recovery point that of the session. If another one is due, it starts to write
// it, of a state with the given number of completed steps. That write may fail if a later Capture replaces the
// copies; Capture's function then writes a recovery point instead.
func (m *Models) keepPoint(ctx context.Context, steps int) error {
	if at := m.written.Swap(nil); at != nil && at.mark < m.kept { // the session has a later one
		_ = os.RemoveAll(at.point.Folder) // Close removes what is left
	} else if at != nil {
		m.kept = at.mark
		if err := m.Advance(at.mark, at.point); err != nil {
			return fmt.Errorf("recovery point of update %d: %w", at.point.Updates, err)
		}
	}
	writing := m.last != nil && !m.last.finished()
	if m.cfg.Rejoin == nil || m.Kept() < session.RecoveryEvery || writing {
		return nil
	}
	c, err := m.capture(ctx, steps)
	if err != nil {
		return err
	}
	folder, err := m.NewFolder()
	m.writing.Go(func() {
		if err := m.save(c, folder); err != nil {
			_ = os.RemoveAll(folder) // Open removes what is left
		}
	})
	return err
}

// Restore implements backend.Models. Ranks of a mesh of any other shape may have written the checkpoint.
func (m *Models) Restore(ctx context.Context, dir string, steps, updates int) error {
	p := session.Point{Folder: dir, Steps: steps, Updates: updates}
	if m.cfg.Rejoin != nil { // a copy, which lasts until there is another recovery point
		folder, err := m.NewFolder()
		if err == nil {
			err = session.CopyTree(folder, dir)
		}
		if err != nil {
			return err
		}
		p.Folder, p.Own = folder, true
	}
	if err := m.Attempt(ctx, func(w *world) error { return w.restore(p) }); err != nil {
		return err
	}
	return m.Reset(p)
}

// restore distributes the checkpoint of a recovery point, whose folder is not empty.
func (w *world) restore(from session.Point) error {
	for _, s := range trimodel.StoredIn(from.Folder) {
		if s.Role == backend.OldPolicy {
			if err := w.send(w.ranks, command{Action: sampled, Version: int64(from.Steps)}); err != nil {
				return err
			}
		}
		if err := w.restoreFile(filepath.Join(from.Folder, s.File), s.Prefix, s.Tensors); err != nil {
			return err
		}
	}
	return w.barrier()
}

// restoreFile distributes the tensors of a file whose names begin with prefix.
func (w *world) restoreFile(path, prefix string, name trimodel.Tensors) error {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := source.From(w.shape, prefix, f, w.scatter(name)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
