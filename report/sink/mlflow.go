package sink

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
)

// mlflowFile is the name of the file in a run's folder that records the run's ID in
// MLflow and the last step sent.
const mlflowFile = "mlflow.json"

const (
	// minRetry and maxRetry limit the pause between attempts, which doubles each time.
	minRetry = time.Second
	maxRetry = time.Minute
	// closeWait limits how long Close waits for unsent steps.
	closeWait = 5 * time.Second
	// maxMetrics is MLflow's limit on metrics in a request.
	maxMetrics = 1000
)

// serverState is the content of mlflowFile: what the server has of the run.
type serverState struct {
	URL  string `json:"url"`  // the server's, with secrets hidden
	Run  string `json:"run"`  // run ID in MLflow; empty before the run is created
	Step int    `json:"step"` // last step sent; -1 for none
}

// tracker sends steps to an MLflow server from its own goroutine, which reads them from the run's metrics
// file. A server that was down therefore gets all steps once it is back or once the run is resumed.
type tracker struct {
	run *Run
	api *client

	// Only the tracker's goroutine uses these.
	state      serverState
	registered bool          // whether the server has the run and its settings
	created    bool          // whether this process created the run in MLflow
	file       *os.File      // the run's metrics file
	lines      *bufio.Reader // of file
	part       []byte        // the beginning of a line whose end is not in the file yet
	queue      []metric      // unsent metrics: fewer than maxMetrics, plus those of one step
	newest     int           // last step in the queue

	wake   chan struct{}      // signals a new step
	ended  chan struct{}      // closed at the end of the run
	end    End                // how the run ended, set before ended is closed
	cancel context.CancelFunc // ends the goroutine
	work   sync.WaitGroup     // the goroutine
}

// openMLflow starts a tracker for the server at url. It continues the run in mlflowFile if that run is on
// the same server. transport carries the requests.
func openMLflow(url string, run *Run, transport http.RoundTripper) (*tracker, error) {
	t := &tracker{run: run, api: newClient(url, transport), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		state: serverState{URL: secret.Hide(url), Step: -1}}
	data, err := filetype.Read(t.path())
	var earlier serverState
	if err == nil {
		if err = json.Unmarshal(data, &earlier); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it to start a new run in MLflow", t.path(), err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	earlier.URL = secret.Hide(earlier.URL)
	if earlier.URL == t.state.URL {
		t.state = earlier
	}
	if t.file, err = filetype.Open(run.metrics()); err != nil {
		return nil, err
	}
	t.lines = bufio.NewReader(t.file)
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.work.Go(func() { t.deliverAll(ctx) })
	return t, nil
}

func (t *tracker) path() string { return filepath.Join(t.run.Dir, mlflowFile) }

// Step implements sink. The values are ignored: the goroutine reads them from the run's metrics.
func (t *tracker) Step(report.Values) error {
	select {
	case t.wake <- struct{}{}:
	default: // a signal is already pending
	}
	return nil
}

// Close implements sink. It waits at most closeWait for unsent steps.
func (t *tracker) Close(end End) error {
	t.end = end
	close(t.ended)
	late := time.AfterFunc(closeWait, t.cancel)
	defer late.Stop()
	t.work.Wait()
	t.cancel()
	t.api.close()
	return t.file.Close()
}

// deliverAll sends steps as they come. It returns when the run has ended and everything is sent, when ctx
// ends, or at an error that another attempt cannot mend. It warns when it gives up, and the first time
// that the server is unreachable.
func (t *tracker) deliverAll(ctx context.Context) {
	pause := minRetry
	warned := false
	ending := false
	ended := t.ended // nil, and so never ready, once ending is set
	for {
		err := t.deliver(ctx)
		if err == nil && ending {
			err = t.finish(ctx)
		}
		// The next attempt begins with a new step or, after an error, when retry is ready.
		wake := t.wake
		var retry <-chan time.Time
		switch {
		case err == nil && ending:
			return
		case err == nil:
			pause = minRetry
		case errors.As(err, new(*refusal)):
			t.run.Warn("mlflow is disabled: %v", err)
			return
		case ctx.Err() != nil:
			t.run.Warn("mlflow is missing the steps from %d on or the run's final status. Resume the run to send them.",
				t.state.Step+1)
			return
		default:
			if !warned {
				t.run.Warn("mlflow is unreachable: %v. The run continues and sends its steps when the server is back.",
					err)
			}
			warned = true
			wake = nil
			retry = time.After(pause)
			pause = min(2*pause, maxRetry)
		}
		select {
		case <-wake:
		case <-retry:
		case <-ended: // also ends a pause, but only once
			ending = true
			ended = nil
		case <-ctx.Done():
		}
	}
}

// deliver sends all steps in the run's metrics that MLflow lacks.
func (t *tracker) deliver(ctx context.Context) error {
	if err := t.register(ctx); err != nil {
		return err
	}
	for {
		if err := t.read(); err != nil {
			return err
		}
		if len(t.queue) == 0 {
			return nil
		}
		for len(t.queue) > 0 {
			n := min(len(t.queue), maxMetrics)
			if err := t.api.logBatch(ctx, t.state.Run, "metrics", t.queue[:n]); err != nil {
				return err
			}
			t.queue = t.queue[n:]
		}
		t.state.Step = t.newest
		if err := t.saveState(); err != nil {
			return err
		}
	}
}

// register resumes the run in mlflowFile, or creates a run with its settings in MLflow. After an error,
// the next call continues where this one stopped. After a success, later calls do nothing.
func (t *tracker) register(ctx context.Context) error {
	if t.registered {
		return nil
	}
	if t.state.Run != "" && !t.created {
		if err := t.api.update(ctx, t.state.Run, "RUNNING", time.Time{}); err != nil {
			return fmt.Errorf("continue run %s from %s: %w", t.state.Run, t.path(), err)
		}
		t.registered = true
		return nil
	}
	if !t.created {
		experiment, err := t.api.experiment(ctx)
		if err != nil {
			return err
		}
		if t.state.Run, err = t.api.create(ctx, experiment, t.run.Name, time.Now()); err != nil {
			return err
		}
		t.created = true
		if err := t.saveState(); err != nil {
			return err
		}
	}
	if err := t.api.logParams(ctx, t.state.Run, t.run.Settings); err != nil {
		return err
	}
	t.registered = true
	return nil
}

// read fills the empty queue with the next unsent steps, if there are any.
func (t *tracker) read() error {
	for len(t.queue) < maxMetrics {
		line, err := t.lines.ReadBytes('\n')
		t.part = append(t.part, line...)
		if errors.Is(err, io.EOF) {
			return nil // the rest of the line comes with the next step
		}
		if err != nil {
			return &refusal{err}
		}
		values, err := report.ParseLine(bytes.TrimSpace(t.part))
		t.part = t.part[:0]
		if err != nil {
			return &refusal{err}
		}
		if step := int(values["step"]); step > t.state.Step {
			t.queue = append(t.queue, metricsOf(values)...)
			t.newest = step
		}
	}
	return nil
}

// saveState writes mlflowFile.
func (t *tracker) saveState() error {
	data, err := json.Marshal(t.state)
	if err == nil {
		err = report.ReplaceFile(t.path(), append(data, '\n'))
	}
	if err != nil {
		return &refusal{fmt.Errorf("write %s: %w", mlflowFile, err)}
	}
	return nil
}

// finish sends the final status of the run.
func (t *tracker) finish(ctx context.Context) error {
	status := map[End]string{Finished: "FINISHED", Stopped: "KILLED", Failed: "FAILED"}[t.end]
	return t.api.update(ctx, t.state.Run, status, time.Now())
}
