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
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// capture is a copy of the ranks' state for a checkpoint. Ranks make it on the trainer's goroutine, and
// another goroutine writes it. The session's log has it until it is written, so that the ranks of a new
// world make it again.
type capture struct {
	number int64
	point  session.Point // without a folder
	mark   session.Mark  // of the state in the session's log
	over   <-chan struct{}

	mu     sync.Mutex
	done   bool
	world  *world        // holds the copies
	copied chan struct{} // closed and replaced when another world holds them
}

// copy makes the ranks of a world copy the values that they own, unless they are no longer needed.
func (c *capture) copy(w *world) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil
	}
	err := w.send(w.ranks, command{Action: save, Version: c.number})
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

// write writes the copies to a folder, tensor by tensor, and frees them. If a rank is lost, it waits for a
// world that has the copies and begins again.
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

// finished reports whether the copies are written or lost.
func (c *capture) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// write writes the copies of a number to a folder.
func (w *world) write(dir string, number int64) error {
	models := &w.cfg.Models
	return models.WriteCheckpoint(dir, func(name trimodel.Tensors) []checkpoint.Source {
		which := slices.IndexFunc(models.Stored(), func(s trimodel.Stored) bool { return s.Tensors == name })
		return w.gatherCopies(which, number).sources()
	})
}

// release frees the copies for a checkpoint.
func (w *world) release(number int64) {
	for _, r := range w.ranks {
		_ = r.snapshots.release(w.life, number) // an error means that a rank failed; the next call returns it
	}
}

// capture makes each rank copy the values that it owns of what a checkpoint stores to host memory. The copies
// replace those of an earlier capture.
func (m *Models) capture(ctx context.Context) (*capture, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	m.saves++
	c := &capture{
		number: m.saves, mark: m.Now(), over: m.Ended(), copied: make(chan struct{}),
		point: session.Point{Steps: int(m.sampled), Updates: m.Updates(), Own: true},
	}
	if m.fresh { // replaced ranks also have to hold the version
		c.mark = m.held
	}
	m.last = c
	return c, m.Do(ctx, func(_ context.Context, w *world) error { return c.copy(w) })
}

// Capture makes each rank copy its part of a checkpoint to host memory. It returns a function that writes all
// values to a folder, tensor by tensor, and frees the copies. The function may run while the ranks train, but
// must end before the next Capture. If a rank is lost meanwhile, it waits until the trainer's goroutine has
// replaced it, in Poll or another call. If ranks may be replaced, the checkpoint also becomes the recovery
// point.
func (m *Models) Capture(ctx context.Context) (write func(dir string) error, err error) {
	c, err := m.capture(ctx)
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
		if last := m.written.Swap(&at); last != nil { // the session never had it
			_ = os.RemoveAll(last.point.Folder) // Close removes what is left
		}
	}
	return err
}

// keepPoint makes the last written recovery point that of the session. If another one is due, it begins to
// write it. That may fail without consequence when Capture replaces the copies, since Capture's function then
// writes a recovery point.
func (m *Models) keepPoint(ctx context.Context) error {
	if at := m.written.Swap(nil); at != nil && at.mark < m.kept { // its writer was slower than a later one
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
	c, err := m.capture(ctx)
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

// Restore distributes a checkpoint that Capture's function wrote after the given number of steps, on a
// mesh of any shape.
func (m *Models) Restore(ctx context.Context, dir string, steps, updates int) error {
	p := session.Point{Folder: dir, Steps: steps, Updates: updates}
	if m.cfg.Rejoin != nil { // keep it until there is another recovery point
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
	m.published = int64(steps)
	m.sampled = m.published
	return m.Reset(p)
}

// restore distributes the checkpoint of a recovery point.
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
