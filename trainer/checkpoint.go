package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report/trace"
)

// stateFile is the path of the state inside a checkpoint.
const stateFile = "trainer/state.json"

// CheckpointRoot returns the folder of the checkpoints of the run in dir.
func CheckpointRoot(dir string) string { return filepath.Join(dir, "checkpoints") }

// checkpoints writes a run's checkpoints in the background, one at a time. Its methods are for one goroutine;
// the writer's goroutine touches only what capture gave it, and done.
type checkpoints struct {
	root     string
	keep     int // 0 keeps all
	models   backend.Models
	files    map[string][]byte // such as config.json and the tokenizer
	disk     trace.Track
	warn     func(format string, args ...any)
	inFlight conc.WaitGroup
	done     chan written // result of the last write; capacity 1, so that the writer never waits
	saved    int          // step of the last written checkpoint, 0 before the first
}

// written is the result of a write.
type written struct {
	step    int
	err     error
	linkErr error // why the best checkpoint has no link; it does not fail the write
}

// capture copies everything that a checkpoint holds to host memory and returns a function
// that writes it, which may run concurrently with training. It first waits for the previous write and returns
// that write's error.
func (c *checkpoints) capture(ctx context.Context, state State) (write func() written, err error) {
	if err := c.wait(); err != nil {
		return nil, err
	}
	models, err := c.models.Capture(ctx, state.Step)
	if err != nil {
		return nil, err
	}
	stateText, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return nil, err
	}
	return func() written {
		defer c.disk.Begin(state.Step, "write checkpoint").End()
		_, err := checkpoint.Save(c.root, checkpoint.StepName(state.Step), func(dir string) error {
			return writeFolder(dir, c.files, stateText, models)
		})
		var linkErr error
		if err == nil {
			linkErr = c.linkBest(state.BestStep)
		}
		if err == nil && c.keep > 0 {
			err = checkpoint.Prune(c.root, c.keep, checkpoint.StepName(state.BestStep))
		}
		return written{state.Step, err, linkErr}
	}, nil
}

// start runs capture's function in the background.
func (c *checkpoints) start(write func() written) {
	done := make(chan written, 1)
	c.done = done
	c.inFlight.Go(func() { done <- write() })
}

// wait waits for the write in flight and returns its error. Each error is returned once.
func (c *checkpoints) wait() error {
	// The next call of the models returns Poll's error.
	_ = backend.While(context.Background(), c.models, func(context.Context) error {
		c.inFlight.Wait()
		return nil
	})
	return c.takeError()
}

// takeError returns the error of a write that has ended, and nil while it runs. Each error is returned once. It
// warns if the write could not link the best checkpoint.
func (c *checkpoints) takeError() error {
	select {
	case w := <-c.done:
		c.warnOfLink(w.linkErr)
		if w.err == nil {
			c.saved = w.step
		}
		return w.err
	default:
		return nil
	}
}

// saveNow writes a checkpoint and waits for it. It writes none if the last one is of the same step and no
// evaluation is pending.
func (c *checkpoints) saveNow(ctx context.Context, state State) error {
	if c.wait() == nil && c.saved == state.Step && state.Step > 0 && state.Pending == nil {
		return nil
	}
	// If the previous write failed, this one replaces it, so wait's error is dropped.
	write, err := c.capture(ctx, state)
	if err != nil {
		return err
	}
	c.start(write)
	return c.wait()
}

// setAside waits for the write in flight and renames the checkpoint of step, so that no run resumes
// from it. It returns the new path, or an error that wraps fs.ErrNotExist if there is no checkpoint.
func (c *checkpoints) setAside(step, best int) (path string, err error) {
	_ = c.wait() // a failed write leaves no checkpoint of the step
	if path, err = checkpoint.SetAside(c.root, checkpoint.StepName(step)); err == nil && step == best {
		c.markBest(0)
	}
	return path, err
}

// writeFolder writes the contents of a checkpoint to dir. models writes the weights and moments.
func writeFolder(dir string, files map[string][]byte, state []byte, models func(dir string) error) error {
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, stateFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, state, 0o644); err != nil {
		return err
	}
	return models(dir)
}

// ReadState reads the state of a checkpoint without loading its weights.
func ReadState(dir string) (State, error) {
	var s State
	b, err := filetype.Read(filepath.Join(dir, stateFile))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && min(s.Step, s.Updates, s.Position, s.BestStep, s.Total) < 0 {
		err = fmt.Errorf("%s: step %d, updates %d, position %d, best step %d, total %d, expected 0 or more of each",
			stateFile, s.Step, s.Updates, s.Position, s.BestStep, s.Total)
	}
	if err != nil {
		return s, fmt.Errorf("resume from %s: %w", dir, err)
	}
	return s, nil
}

// Resume loads a checkpoint, which must be intact (checkpoint.Verify), into m, which must already hold the run's
// reference and starting weights.
func Resume(ctx context.Context, dir string, m backend.Models) (State, error) {
	s, err := ReadState(dir)
	if err != nil {
		return s, err
	}
	if err := m.Restore(ctx, dir, s.Step, s.Updates); err != nil {
		return s, fmt.Errorf("resume: %w", err)
	}
	return s, nil
}
