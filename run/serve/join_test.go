package serve

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

	"github.com/easyrl/easyrl/internal/notice"
)

// fakeTrainer is a control address that accepts every instance.
type fakeTrainer struct {
	*httptest.Server

	mu       sync.Mutex
	calls    []string // without looks
	looks    chan struct{}
	boot     string
	state    string // of the instance; empty if it is not in the fleet
	away     bool   // every call fails
	givenUp  bool   // the instance was evicted and may rejoin
	takenOut bool   // a user removed the instance
	requests int    // sent to the instance
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

// set changes the trainer's state between two calls.
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

// call implements joinConfig.Call.
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

// notes collects what a registration reports.
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

// until waits for a note that contains part.
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

// register registers an instance that checks without pausing.
func (f *fakeTrainer) register(t *testing.T, running func() int) (*registration, *notes) {
	t.Helper()
	u, err := url.Parse(f.URL)
	require.NoError(t, err)
	said := &notes{more: make(chan struct{}, 1)}
	return joinFleet(t.Context(), joinConfig{Trainer: u, Call: f.call, Addr: "127.0.0.1:8000", Running: running,
		Say:   func(_ notice.Kind, format string, args ...any) { said.note(format, args...) },
		pause: time.Millisecond, look: time.Millisecond}), said
}

// lookUntil answers looks until done is closed.
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

// An instance rejoins, once, a trainer that was unreachable and then restarted.
func TestRejoinsAfterRestart(t *testing.T) {
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
	said.until(t, "not yet; retrying")
	f.set(func() { f.away, f.boot, f.state = false, "two", "" })
	for len(f.called()) < 2 {
		<-f.looks
	}
	f.set(func() { f.givenUp = true }) // the trainer could not reach it and is about to evict it
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
	m.drain()
	m.leave()
	require.Equal(t, []string{joinCall, joinCall, joinCall, drainCall, leaveCall}, f.called())
	require.Equal(t, 1, strings.Count(said.String(), "lost contact"), said.String())
	require.Equal(t, 3, strings.Count(said.String(), "joined "), said.String())
}

// A restarted trainer that already lists the instance needs no join. It may remove the
// instance.
func TestRestartedTrainerListsInstance(t *testing.T) {
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
	said.until(t, "removed the instance")
	require.Equal(t, []string{joinCall}, f.called())
}

// An instance that an operator drains or removes stays out.
func TestStaysOutAfterDrainOrRemoval(t *testing.T) {
	t.Parallel()
	for state, line := range map[string]string{"DRAINING": "is draining the instance; it will not rejoin",
		"": "removed the instance; it will not rejoin"} {
		f := newFakeTrainer(t)
		m, said := f.register(t, nothingRuns)
		<-f.looks
		f.set(func() { f.state = state })
		f.lookUntil(m.done)
		said.until(t, line)
		require.Equal(t, []string{joinCall}, f.called())
		m.drain()
		m.leave()
	}
}

// An instance stays out if it was removed and the trainer restarted before the instance
// could see that.
func TestStaysOutIfRemovedBeforeRestart(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	m, said := f.register(t, nothingRuns)
	<-f.looks
	f.set(func() { f.boot, f.state, f.takenOut = "two", "", true })
	f.lookUntil(m.done)
	said.until(t, "removed the instance; it will not rejoin")
	require.Equal(t, []string{joinCall}, f.called())
}

// A leaving instance waits for the requests that the trainer has already sent.
func TestDrainWaitsForSentRequests(t *testing.T) {
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
		m.drain()
	}()
	<-f.looks
	<-f.looks
	select {
	case <-done:
		require.Fail(t, "one request has not arrived yet")
	default:
	}
	close(arrived)
	f.lookUntil(done)
	require.Equal(t, []string{joinCall, drainCall}, f.called())
}

// An unreachable trainer does not delay an instance that leaves.
func TestLeavesUnreachableTrainer(t *testing.T) {
	t.Parallel()
	f := newFakeTrainer(t)
	m, said := f.register(t, nothingRuns)
	<-f.looks
	f.set(func() { f.away = true })
	m.drain()
	m.leave()
	require.Equal(t, []string{joinCall, drainCall}, f.called())
	require.Contains(t, said.String(), "leave: ")
}

// An instance whose join was cut off removes itself by its URL.
func TestLeavesAfterInterruptedJoin(t *testing.T) {
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
			<-r.Context().Done() // publishes first
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	defer trainer.Close()
	f := &fakeTrainer{Server: trainer}
	m, _ := f.register(t, nothingRuns)
	<-asked
	m.drain()
	m.leave()
	id := "/instances/" + url.PathEscape("http://127.0.0.1:8000")
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"POST /instances", fmt.Sprintf("POST %s/drain", id), "DELETE " + id}, calls)
}
