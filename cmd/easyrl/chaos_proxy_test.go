package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run"
)

// proxy is a reverse proxy with which a test observes, delays and changes exchanges.
type proxy struct {
	*httptest.Server
	client *http.Client
	gone   atomic.Bool // breaks off all calls

	mu      sync.Mutex
	backend string // root URL of the server; may be empty
	meet    func(x *exchange)
}

// exchange is a request for completions, or a weight update, on its way through a proxy.
type exchange struct {
	p       *proxy
	w       http.ResponseWriter
	r       *http.Request
	body    []byte
	update  bool  // a weight update
	version int64 // requested version

	answered bool   // to the client
	fault    func() // reports that the fault occurred; set by the test
}

func newProxy(t *testing.T, backend string) *proxy {
	t.Helper()
	p := &proxy{backend: backend, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

// lead makes the server at root the proxy's backend.
func (p *proxy) lead(root string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = root
}

func (p *proxy) root() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backend
}

// on sets the handler of requests for completions and weight updates. Each request runs
// in its own goroutine. A nil handler passes all requests.
func (p *proxy) on(meet func(x *exchange)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meet = meet
}

// handler returns the handler of requests for completions and weight updates.
func (p *proxy) handler() func(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.meet
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || p.gone.Load() {
		panic(http.ErrAbortHandler)
	}
	x := &exchange{p: p, w: w, r: r, body: body}
	meet := p.handler()
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/completions":
		var asked struct {
			Version int64 `json:"weight_version"`
		}
		err = json.Unmarshal(body, &asked)
		x.version = asked.Version
	case "PUT /v1/weights":
		x.update = true
		x.version, err = strconv.ParseInt(r.URL.Query().Get("version"), 10, 64)
	default:
		meet = nil
	}
	if meet == nil || err != nil {
		x.pass()
		return
	}
	meet(x)
}

// ask sends the request to the server and returns its answer. If the server fails, ask
// breaks off the client's connection.
func (x *exchange) ask() (status int, answer []byte) {
	req, err := http.NewRequestWithContext(x.r.Context(), x.r.Method, x.p.root()+x.r.URL.RequestURI(),
		bytes.NewReader(x.body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	req.Header.Set("Content-Type", x.r.Header.Get("Content-Type"))
	resp, err := x.p.client.Do(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if answer, err = io.ReadAll(resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return resp.StatusCode, answer
}

// begin sends the header of an answer with length bytes. A negative length sends no
// Content-Length.
func (x *exchange) begin(status, length int) {
	x.answered = true
	x.w.Header().Set("Content-Type", "application/json")
	if length >= 0 {
		x.w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	x.w.WriteHeader(status)
}

// send writes and flushes a part of the answer's body.
func (x *exchange) send(part []byte) {
	_, _ = x.w.Write(part) // the client may be gone
	_ = http.NewResponseController(x.w).Flush()
}

// give sends a whole answer to the client.
func (x *exchange) give(status int, answer []byte) {
	x.begin(status, len(answer))
	x.send(answer)
}

// pass forwards the request and its answer and returns the status.
func (x *exchange) pass() int {
	status, answer := x.ask()
	x.give(status, answer)
	return status
}

// wait holds the request until ready is closed. It aborts if the client leaves.
func (x *exchange) wait(ready <-chan struct{}) {
	select {
	case <-ready:
	case <-x.r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// gate holds requests for completions of one version.
type gate struct {
	version int64
	first   sync.Once
	came    chan struct{} // closed when the first request arrives
	open    chan struct{} // closed by the test
}

func newGate(version int64) *gate {
	return &gate{version: version, came: make(chan struct{}), open: make(chan struct{})}
}

// hold returns when x may proceed.
func (g *gate) hold(x *exchange) {
	if !x.update && x.version == g.version {
		g.first.Do(func() { close(g.came) })
		x.wait(g.open)
	}
}

// training runs easyrl train in a goroutine of this process.
type training struct {
	out  string // the run's folder
	said *console
	done chan struct{}
	err  error // valid once done is closed
}

// impatient returns a fleet configuration with short timeouts and many retries.
func impatient() fleet.Config {
	c := fleet.DefaultConfig()
	c.Attempts, c.MaxRestarts = 1000, 1000
	c.CallTimeout, c.PublishTimeout = 2*time.Second, 2*time.Second
	c.Backoff, c.BackoffMax = 20*time.Millisecond, 200*time.Millisecond
	c.ProbeEvery, c.ProbeTimeout = 50*time.Millisecond, time.Second
	return c
}

// startTraining trains dir's run with the given settings into dir/name. The test waits for
// it at its end.
func startTraining(t *testing.T, dir, name string, fc fleet.Config, settings ...string) *training {
	t.Helper()
	tr := &training{out: filepath.Join(dir, name), said: &console{more: make(chan struct{}, 1)},
		done: make(chan struct{})}
	resolved, err := run.Load(configs.TrainTask, []string{filepath.Join(dir, "run.toml")},
		append(settings, fmt.Sprintf("run.dir=%q", tr.out)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(tr.done)
		tr.err = run.Train(ctx, resolved, run.Options{Out: io.Discard, Log: tr.said, Fleet: &fc})
		_, _ = tr.said.Write([]byte("ended\n"))
	}()
	t.Cleanup(func() {
		cancel()
		<-tr.done
	})
	return tr
}

// until waits for an event and fails if the run ends first.
func (tr *training) until(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-tr.done:
		require.Fail(t, "the run ended too early", "%v\n%s", tr.err, tr.said)
	}
}

// control returns the run's control address.
func (tr *training) control(t *testing.T) string {
	t.Helper()
	root := tr.said.until(t, `live page: (http://\S+)/\n|ended`)
	require.NotEmpty(t, root, tr.said.String())
	return root
}

// end waits for the run and requires that it succeeded.
func (tr *training) end(t *testing.T) {
	t.Helper()
	<-tr.done
	require.NoError(t, tr.err, tr.said.String())
}

// endpoints returns the setting that makes proxies the run's servers.
func endpoints(proxies ...*proxy) string {
	var urls []string
	for _, p := range proxies {
		urls = append(urls, strconv.Quote(p.URL))
	}
	return "inference.endpoints=[" + strings.Join(urls, ",") + "]"
}

// trainedOn returns the groups that a step trained on, in prompt order, without their
// sampler's name. It requires that each prompt occurs once and has the step's version. by
// counts the groups per instance.
func trainedOn(t *testing.T, run string, step int) (groups []rollout.Group, by map[string]int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "rollouts", fmt.Sprintf("step-%06d.jsonl", step)))
	require.NoError(t, err)
	by = map[string]int{}
	for line := range bytes.Lines(text) {
		var g rollout.Group
		require.NoError(t, json.Unmarshal(line, &g))
		require.Equal(t, []int{step, len(groups)}, []int{g.Step, g.Index}, "each prompt appears once")
		require.EqualValues(t, step, g.Version)
		by[g.Responses[0].Instance]++
		for i := range g.Responses {
			r := &g.Responses[i]
			require.EqualValues(t, step, r.Spans[0].Version, "group %d response %d", g.Index, i)
			require.NotEmpty(t, r.Instance)
			r.Instance = ""
		}
		groups = append(groups, g)
	}
	return groups, by
}

// requireSameRun requires that two runs trained on the same responses, each once, and
// ended in the same weights.
func requireSameRun(t *testing.T, want, got string, steps int) {
	t.Helper()
	values := metricsOf(t, got)
	require.Len(t, values, steps)
	for step := 1; step <= steps; step++ {
		wanted, _ := trainedOn(t, want, step)
		groups, _ := trainedOn(t, got, step)
		require.Equal(t, wanted, groups, "step %d", step)
		require.Equal(t, []float64{float64(len(wanted)), 0},
			[]float64{values[step-1]["groups/trained"], values[step-1]["groups/failed"]})
	}
	require.Equal(t, weightsHash(t, want, steps), weightsHash(t, got, steps))
}
