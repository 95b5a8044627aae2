package join

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeTrainer is a control address that takes whoever comes.
type fakeTrainer struct {
	*httptest.Server

	mu       sync.Mutex
	calls    []string // but looks
	looks    chan struct{}
	boot     string
	state    string // of the instance; empty where it is not in the fleet
	away     bool   // every call fails
	givenUp  bool   // it left, and may come again
	takenOut bool   // somebody took it out
	requests int    // that it has sent
}

func newFakeTrainer(t *testing.T) *fakeTrainer {
	t.Helper()
	f := &fakeTrainer{boot: "one", looks: make(chan struct{})}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeTrainer) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		select {
		case f.looks <- struct{}{}:
		case <-r.Context().Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		f.calls = append(f.calls, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+string(text)))
	}
	if f.away {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"not yet"}}`)
		return
	}
	member := func() map[string]any {
		return map[string]any{"id": "host/1", "state": f.state, "boot": f.boot, "requests": f.requests}
	}
	var answer any
	switch {
	case r.Method == http.MethodGet:
		list := []any{}
		if f.state != "" && r.URL.Query().Get("id") == "host/1" {
			list = append(list, member())
		}
		answer = map[string]any{"boot": f.boot, "given_up": f.givenUp, "taken_out": f.takenOut, "instances": list}
	case r.Method == http.MethodDelete:
		f.state = ""
	case strings.HasSuffix(r.URL.Path, "/drain"):
		f.state = "DRAINING"
		answer = member()
	default:
		f.state, f.givenUp = "HEALTHY", false
		answer = member()
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// set changes the trainer between two calls.
func (f *fakeTrainer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeTrainer) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// call is Config.Call.
func (f *fakeTrainer) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, f.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return errors.New("not yet")
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// notes are the lines that a member says.
type notes struct {
	mu   sync.Mutex
	text string
	more chan struct{}
}

func (n *notes) note(format string, args ...any) {
	n.mu.Lock()
	n.text += fmt.Sprintf(format, args...) + "\n"
	n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default:
	}
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text
}

// until waits for a line with part.
func (n *notes) until(t *testing.T, part string) {
	t.Helper()
	for !strings.Contains(n.String(), part) {
		select {
		case <-n.more:
		case <-t.Context().Done():
			require.Fail(t, "no "+part, n.String())
		}
	}
}

// register registers an instance that checks without a pause.
func (f *fakeTrainer) register(t *testing.T, running func() int) (*Registration, *notes) {
	t.Helper()
	u, err := url.Parse(f.URL)
	require.NoError(t, err)
	said := &notes{more: make(chan struct{}, 1)}
	return Begin(t.Context(), Config{Trainer: u, Call: f.call, Addr: "127.0.0.1:8000", Running: running, Note: said.note,
		pause: time.Millisecond, look: time.Millisecond}), said
}

// lookUntil answers looks until done.
func (f *fakeTrainer) lookUntil(done <-chan struct{}) {
	for {
		select {
		case <-f.looks:
		case <-done:
			return
		}
	}
}

const (
	joinCall  = `POST /instances {"kind":"easyrl","url":"http://127.0.0.1:8000"}`
	drainCall = `POST /instances/host%2F1/drain null`
	leaveCall = `DELETE /instances/host%2F1 null`
)

func nothingRuns() int { return 0 }

// A trainer that was started again, and that was away meanwhile, has the instance
// again, once.
func TestJoinsAgain(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	m, said := f.register(t, nothingRuns)
	for range 3 {
		<-f.looks
	}
	require.Equal(t, []string{joinCall}, f.called())
	f.set(func() { f.away = true })
	for range 3 {
		<-f.looks
	}
	said.until(t, "not yet; looking on")
	f.set(func() { f.away, f.boot, f.state = false, "two", "" })
	for len(f.called()) < 2 {
		<-f.looks
	}
	f.set(func() { f.givenUp = true }) // the trainer could not reach it, and is about to take it out
	for range 3 {
		<-f.looks
	}
	f.set(func() { f.state = "" })
	for len(f.called()) < 3 {
		<-f.looks
	}
	for range 3 {
		<-f.looks
	}
	m.Drain()
	m.Leave()
	require.Equal(t, []string{joinCall, joinCall, joinCall, drainCall, leaveCall}, f.called())
	require.Equal(t, 1, strings.Count(said.String(), "looking on"), said.String())
	require.Equal(t, 3, strings.Count(said.String(), "joined "), said.String())
}

// One that the trainer has in its own list joins without being asked: it is known
// under the new process, which may take it out.
func TestKnownToTheNextTrainer(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	m, said := f.register(t, nothingRuns)
	<-f.looks
	f.set(func() { f.boot = "two" })
	for range 3 {
		<-f.looks
	}
	f.set(func() { f.state = "" })
	f.lookUntil(m.done)
	said.until(t, "took the instance out")
	require.Equal(t, []string{joinCall}, f.called())
}

// Whom an operator drains or removes stays out, whatever the trainer does later.
func TestOperatorsAreObeyed(t *testing.T) {
	t.Parallel()
	for state, line := range map[string]string{"DRAINING": "drains the instance: it does not join again", "": "took the instance out: it does not join again"} {
		f := newFakeTrainer(t)
		m, said := f.register(t, nothingRuns)
		<-f.looks
		f.set(func() { f.state = state })
		f.lookUntil(m.done)
		said.until(t, line)
		require.Equal(t, []string{joinCall}, f.called())
		m.Drain()
		m.Leave()
	}
}

// Nor does it come back to a trainer that was started again before it could see
// that it was taken out.
func TestTakenOutBeforeTheTrainerWasStartedAgain(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	m, said := f.register(t, nothingRuns)
	<-f.looks
	f.set(func() { f.boot, f.state, f.takenOut = "two", "", true })
	f.lookUntil(m.done)
	said.until(t, "took the instance out: it does not join again")
	require.Equal(t, []string{joinCall}, f.called())
}

// An instance that leaves waits for the requests that the trainer has sent.
func TestDrainWaitsForWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	arrived := make(chan struct{})
	m, _ := f.register(t, func() int {
		select {
		case <-arrived:
			return 2
		default:
			return 1
		}
	})
	<-f.looks
	f.set(func() { f.requests = 2 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Drain()
	}()
	<-f.looks
	<-f.looks
	select {
	case <-done:
		require.Fail(t, "one request is on its way")
	default:
	}
	close(arrived)
	f.lookUntil(done)
	require.Equal(t, []string{joinCall, drainCall}, f.called())
}

// A trainer that is gone holds nobody up.
func TestLeavesATrainerThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	m, said := f.register(t, nothingRuns)
	<-f.looks
	f.set(func() { f.away = true })
	m.Drain()
	m.Leave()
	require.Equal(t, []string{joinCall, drainCall}, f.called())
	require.Contains(t, said.String(), "leave: ")
}

// An instance whose try to join was cut off takes itself out by its URL.
func TestLeavesAJoinThatWasCutOff(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []string
	asked := make(chan struct{})
	trainer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		calls = append(calls, r.Method+" "+r.URL.EscapedPath())
		mu.Unlock()
		if r.URL.Path == "/instances" {
			close(asked)
			<-r.Context().Done() // it publishes first
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	defer trainer.Close()
	f := &fakeTrainer{Server: trainer}
	m, _ := f.register(t, nothingRuns)
	<-asked
	m.Drain()
	m.Leave()
	id := "/instances/" + url.PathEscape("http://127.0.0.1:8000")
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"POST /instances", fmt.Sprintf("POST %s/drain", id), "DELETE " + id}, calls)
}
