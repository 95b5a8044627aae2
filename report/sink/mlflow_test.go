package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// fake is an in-memory MLflow server. Its replies are those of MLflow 3.17.
type fake struct {
	mu          sync.Mutex
	away        bool   // every request fails
	refuses     string // error code for every batch
	stumbles    int    // number of batches to fail first
	experiments map[string]string
	runs        []*fakeRun
	calls       int
	largest     int // batch size
}

type fakeRun struct {
	name, status string
	metrics      []metric
	params       map[string]string
}

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.away {
		return nil, errors.New("connection refused")
	}
	var in struct {
		Name    string   `json:"name"`
		RunName string   `json:"run_name"`
		RunID   string   `json:"run_id"`
		Status  string   `json:"status"`
		Metrics []metric `json:"metrics"`
		Params  []param  `json:"params"`
	}
	w := httptest.NewRecorder()
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			return nil, err
		}
		if bytes.Contains(body, []byte(":null")) {
			w.WriteHeader(http.StatusInternalServerError)
			return w.Result(), nil
		}
	}
	reply := func(status int, format string, args ...any) {
		w.WriteHeader(status)
		fmt.Fprintf(w, format, args...)
	}
	var run *fakeRun
	for i := range f.runs {
		if in.RunID == fmt.Sprintf("run%d", i) {
			run = f.runs[i]
		}
	}
	switch name := strings.TrimPrefix(req.URL.Path, "/api/2.0/mlflow/"); {
	case name == "experiments/get-by-name":
		if id, ok := f.experiments[req.URL.Query().Get("experiment_name")]; ok {
			reply(200, `{"experiment":{"experiment_id":%q}}`, id)
		} else {
			reply(404, `{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"none"}`)
		}
	case name == "experiments/create":
		f.experiments = map[string]string{in.Name: "7"}
		reply(200, `{"experiment_id":"7"}`)
	case name == "runs/create":
		f.runs = append(f.runs, &fakeRun{name: in.RunName, status: "RUNNING", params: map[string]string{}})
		reply(200, `{"run":{"info":{"run_id":"run%d"}}}`, len(f.runs)-1)
	case run == nil:
		reply(404, `{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"Run with id=%s not found"}`, in.RunID)
	case name == "runs/update":
		run.status = in.Status
		reply(200, `{}`)
	case name == "runs/log-batch" && f.stumbles > 0:
		f.stumbles--
		w.WriteHeader(http.StatusServiceUnavailable)
	case name == "runs/log-batch" && f.refuses != "":
		reply(400, `{"error_code":%q,"message":"not this"}`, f.refuses)
	case name == "runs/log-batch":
		f.largest = max(f.largest, len(in.Metrics))
		run.metrics = append(run.metrics, in.Metrics...)
		for _, p := range in.Params {
			run.params[p.Key] = p.Value
		}
		reply(200, `{}`)
	}
	return w.Result(), nil
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// steps returns the steps that have the metric key.
func (r *fakeRun) steps(key string) []int {
	var all []int
	for _, m := range r.metrics {
		if m.Key == key {
			all = append(all, m.Step)
		}
	}
	return all
}

const server = "http://mlflow:5000"

func TestMLflowContinuesRunAfterResume(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{}
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, dir, 0)
		m, err := openMLflow(server, &f.run, api)
		require.NoError(t, err)
		for step := range 4 {
			f.step(m, report.Values{"step": float64(step), "time": 1.5, "reward/mean": 0.5, "eval/a b/mean@4": 1})
		}
		require.NoError(t, m.Close(Stopped))
		require.Len(t, api.runs, 1)
		require.Equal(t, "KILLED", api.runs[0].status)
		require.Equal(t, []int{0, 1, 2, 3}, api.runs[0].steps("reward/mean"))
		require.Equal(t, metric{"reward/mean", 0.5, 1500, 0}, api.runs[0].metrics[0])

		f = newFolder(t, dir, 2) // repeat steps 2 and 3
		m, err = openMLflow(server, &f.run, api)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "RUNNING", api.runs[0].status)
		for step := 2; step < 6; step++ {
			f.step(m, report.Values{"step": float64(step), "reward/mean": 0.5, "eval/a b/mean@4": 1})
		}
		require.NoError(t, m.Close(Finished))
		require.Empty(t, f.notes)
	})
	require.Len(t, api.runs, 1)
	run := api.runs[0]
	require.Equal(t, "FINISHED", run.status)
	require.Equal(t, "addition", run.name)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, run.steps("reward/mean"))
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, run.steps("eval/a b/mean_at_4"))
	require.Equal(t, map[string]string{"run.steps": "10", "loss.kind": `"grpo"`}, run.params)
}

// A server that is down does not block the run, causes one warning, and gets all steps
// once it is back.
func TestMLflowServerDown(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{away: true}
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, dir, 0)
		m, err := openMLflow(server, &f.run, api)
		require.NoError(t, err)
		began := time.Now()
		for step := range 500 {
			values := report.Values{"step": float64(step)}
			for i := range 9 {
				values[fmt.Sprintf("a/%d", i)] = float64(i)
			}
			f.step(m, values)
		}
		require.Zero(t, time.Since(began)) // by the bubble's clock
		<-time.After(time.Hour)
		synctest.Wait()
		require.Less(t, api.calls, 80) // backoff limits the calls
		require.Len(t, f.notes, 1)
		require.Contains(t, f.notes[0], "mlflow is unreachable")
		api.set(func() { api.away = false })
		<-time.After(maxRetry)
		synctest.Wait()
		require.Len(t, api.runs[0].steps("a/8"), 500)
		require.LessOrEqual(t, api.largest, maxMetrics)
		require.NoError(t, m.Close(Finished))
		require.Equal(t, "FINISHED", api.runs[0].status)
		require.Len(t, f.notes, 1)
	})
}

// If the server fails while it takes the settings, it gets them later, without a
// second run.
func TestMLflowGetsSettingsAfterFailures(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{stumbles: 2}
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, dir, 0)
		f.run.Settings["log.to"] = `["mlflow=http://me:secret@mlflow:5000"]`
		m, err := openMLflow(server, &f.run, api)
		require.NoError(t, err)
		f.step(m, report.Values{"step": 1, "reward/mean": 1})
		<-time.After(time.Minute)
		require.NoError(t, m.Close(Finished))
	})
	require.Len(t, api.runs, 1)
	require.Equal(t, []int{1}, api.runs[0].steps("reward/mean"))
	require.Equal(t, map[string]string{"run.steps": "10", "loss.kind": `"grpo"`,
		"log.to": `["mlflow=http://***@mlflow:5000"]`}, api.runs[0].params)
}

func TestMLflowDownAtEndGetsRestAfterResume(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{}
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, dir, 0)
		m, err := openMLflow(server, &f.run, api)
		require.NoError(t, err)
		f.step(m, report.Values{"step": 1, "reward/mean": 1})
		synctest.Wait()
		api.set(func() { api.away = true })
		f.step(m, report.Values{"step": 2, "reward/mean": 1})
		began := time.Now()
		require.NoError(t, m.Close(Finished))
		require.Equal(t, closeWait, time.Since(began)) // by the bubble's clock
		require.Len(t, f.notes, 2)
		require.Contains(t, f.notes[1], "mlflow is missing the steps from 2 on")

		api.set(func() { api.away = false })
		f = newFolder(t, dir, 3) // nothing left to train
		m, err = openMLflow(server, &f.run, api)
		require.NoError(t, err)
		require.NoError(t, m.Close(Finished))
		require.Empty(t, f.notes)
	})
	require.Equal(t, []int{1, 2}, api.runs[0].steps("reward/mean"))
	require.Equal(t, "FINISHED", api.runs[0].status)
}

func TestMLflowRefuses(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{refuses: "INVALID_PARAMETER_VALUE"}
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, dir, 0)
		m, err := openMLflow(server, &f.run, api)
		require.NoError(t, err)
		for step := range 9 {
			f.step(m, report.Values{"step": float64(step), "reward/mean": 1})
			synctest.Wait()
		}
		require.NoError(t, m.Close(Finished))
		require.Equal(t, []string{"mlflow is disabled: runs/log-batch: INVALID_PARAMETER_VALUE: not this"}, f.notes)

		gone := &fake{} // a server without the run
		f = newFolder(t, dir, 9)
		m, err = openMLflow(server, &f.run, gone)
		require.NoError(t, err)
		require.NoError(t, m.Close(Finished))
		require.Len(t, f.notes, 1)
		require.Contains(t, f.notes[0], "RESOURCE_DOES_NOT_EXIST: Run with id=run0 not found")

		f = newFolder(t, dir, 9)
		m, err = openMLflow("http://elsewhere:5000", &f.run, gone) // a new run with all steps
		require.NoError(t, err)
		require.NoError(t, m.Close(Finished))
		require.Len(t, gone.runs[0].steps("reward/mean"), 9)
	})
}

func TestMLflowNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"eval/test/mean@1": "eval/test/mean_at_1",
		"reward//mean": "reward/mean", "../x": "x",
		"a/../../b": "b", "": "_", "/": "_", "reward/é(x)/mean": "reward/__x_/mean",
		strings.Repeat("a", 300): strings.Repeat("a", 250)} {
		require.Equal(t, want, mlflowName(name), name)
	}
}
