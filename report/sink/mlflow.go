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
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/report"
)

// MLflowFile in a run's folder says which of MLflow's runs it is, and up to which
// step MLflow has it.
const MLflowFile = "mlflow.json"

const (
	// retryLeast and retryMost are the pauses between attempts while the server is
	// away.
	retryLeast = time.Second
	retryMost  = time.Minute
	// closeWait is how long the end of a run waits for MLflow to take the rest.
	closeWait = 5 * time.Second
	// mostMetrics is how many numbers MLflow takes in one request.
	mostMetrics = 1000
)

// place is MLflowFile.
type place struct {
	URL  string `json:"url"`
	Run  string `json:"run"`  // MLflow's id
	Step int    `json:"step"` // the last one that MLflow has; -1 for none
}

// tracker sends steps to an MLflow server from a goroutine of its own. What waits
// to be sent is in the run's metrics and not in memory: a server may be away for
// as long as it likes, and gets everything when it is back, or when the run is
// resumed.
type tracker struct {
	run    *Run
	api    *client
	place  place
	there  bool // the server knows the run
	made   bool // by this process
	file   *os.File
	lines  *bufio.Reader
	part   []byte   // of a line whose end is not written yet
	queue  []metric // read and not sent; of mostMetrics and one step at most
	newest int      // step of the queue

	wake   chan struct{} // there is a step
	hurry  chan struct{} // the run ends
	ending atomic.Bool
	end    End
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// openMLflow calls the server at url over transport.
func openMLflow(url string, run *Run, transport http.RoundTripper) (*tracker, error) {
	t := &tracker{run: run, api: newClient(url, transport), wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), place: place{URL: url, Step: -1}}
	data, err := os.ReadFile(t.path())
	var was place
	if err == nil {
		if err = json.Unmarshal(data, &was); err != nil {
			return nil, fmt.Errorf("%s: %w: remove it to begin a new run in MLflow", t.path(), err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if was.URL == url {
		t.place = was
	}
	if t.file, err = os.Open(run.metrics()); err != nil {
		return nil, err
	}
	t.lines = bufio.NewReader(t.file)
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.work.Go(func() { t.deliverAll(ctx) })
	return t, nil
}

func (t *tracker) path() string { return filepath.Join(t.run.Dir, MLflowFile) }

// Step is of Sink.
func (t *tracker) Step(report.Values) error {
	nudge(t.wake)
	return nil
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

// Close is of Sink. It waits closeWait for what is not sent yet.
func (t *tracker) Close(end End) error {
	t.end = end
	t.ending.Store(true)
	nudge(t.wake)
	nudge(t.hurry)
	late := time.AfterFunc(closeWait, t.cancel)
	defer late.Stop()
	t.work.Wait()
	t.cancel()
	t.api.close()
	return t.file.Close()
}

// deliverAll sends steps as they come, until the run has ended and all is sent,
// ctx ends, or the server refuses. It says so once where something is wrong.
func (t *tracker) deliverAll(ctx context.Context) {
	pause, warned := retryLeast, false
	for {
		ending := t.ending.Load() // before the file is read: nothing is written after it
		err := t.deliver(ctx)
		if err == nil && ending {
			err = t.finish(ctx)
		}
		var no *refusal
		switch {
		case err == nil && ending:
			return
		case err == nil:
			pause = retryLeast
			select {
			case <-t.wake:
			case <-ctx.Done():
			}
		case errors.As(err, &no):
			t.run.Warn("mlflow gets nothing more: %v", err)
			return
		case ctx.Err() != nil:
			t.run.Warn("mlflow lacks the steps from %d on, or how the run ended: a resumed run sends them", t.place.Step+1)
			return
		default:
			if !warned {
				t.run.Warn("mlflow is away: %v: the run goes on, and steps are sent when it is back", err)
			}
			warned = true
			t.rest(ctx, pause)
			pause = min(2*pause, retryMost)
		}
	}
}

// rest waits for a pause, or for less where the run ends.
func (t *tracker) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.hurry:
	case <-ctx.Done():
	}
}

// deliver sends all that the run's metrics have and MLflow lacks.
func (t *tracker) deliver(ctx context.Context) error {
	if err := t.arrive(ctx); err != nil {
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
			n := min(len(t.queue), mostMetrics)
			if err := t.api.logBatch(ctx, t.place.Run, "metrics", t.queue[:n]); err != nil {
				return err
			}
			t.queue = t.queue[n:]
		}
		t.place.Step = t.newest
		if err := t.keep(); err != nil {
			return err
		}
	}
}

// arrive makes MLflow's run, or goes on with the one that there is.
func (t *tracker) arrive(ctx context.Context) error {
	if t.there {
		return nil
	}
	if t.place.Run != "" && !t.made {
		if err := t.api.update(ctx, t.place.Run, "RUNNING", time.Time{}); err != nil {
			return fmt.Errorf("go on with run %s of %s: %w", t.place.Run, t.path(), err)
		}
		t.there = true
		return nil
	}
	if !t.made {
		experiment, err := t.api.experiment(ctx, experimentName)
		if err != nil {
			return err
		}
		if t.place.Run, err = t.api.create(ctx, experiment, t.run.Name, time.Now()); err != nil {
			return err
		}
		t.made = true
		if err := t.keep(); err != nil {
			return err
		}
	}
	if err := t.api.logParams(ctx, t.place.Run, t.run.Settings); err != nil {
		return err
	}
	t.there = true
	return nil
}

// read fills the empty queue with the steps that come next in the metrics.
func (t *tracker) read() error {
	for len(t.queue) < mostMetrics {
		line, err := t.lines.ReadBytes('\n')
		t.part = append(t.part, line...)
		if errors.Is(err, io.EOF) {
			return nil // the rest comes with the next step
		}
		if err != nil {
			return &refusal{err}
		}
		values, err := report.ParseLine(bytes.TrimSpace(t.part))
		t.part = t.part[:0]
		if err != nil {
			return &refusal{err}
		}
		if step := int(values["step"]); step > t.place.Step {
			t.queue = append(t.queue, metricsOf(values)...)
			t.newest = step
		}
	}
	return nil
}

// keep writes MLflowFile.
func (t *tracker) keep() error {
	data, err := json.Marshal(t.place)
	if err == nil {
		err = report.ReplaceFile(t.path(), append(data, '\n'))
	}
	if err != nil {
		return &refusal{fmt.Errorf("write %s: %w", MLflowFile, err)}
	}
	return nil
}

// finish tells MLflow how the run ended.
func (t *tracker) finish(ctx context.Context) error {
	status := map[End]string{Finished: "FINISHED", Stopped: "KILLED", Failed: "FAILED"}[t.end]
	return t.api.update(ctx, t.place.Run, status, time.Now())
}
