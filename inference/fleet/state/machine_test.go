package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// start returns the time at which the tests begin.
func start() time.Time { return time.Unix(1000, 0) }

// config returns a configuration for most tests.
func config() Config {
	return Config{
		MinServing: 1, Attempts: 5, DeadAfter: 3, MaxRestarts: 10, Ahead: 0.5, EmptyWait: 2 * time.Minute,
		Backoff: 200 * time.Millisecond, BackoffMax: 10 * time.Second, Watchdog: 45 * time.Minute,
		Patience: time.Second / 2,
	}
}

// request returns a request for n responses.
func request(n, maxTokens int) *inference.Request {
	return &inference.Request{PromptIDs: []int32{1}, N: n,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: maxTokens}}
}

// took returns the result of a successful publish.
func took(capacity int) Publication {
	return Publication{Checksum: "sum", Reported: "sum", Capacity: capacity}
}

// serve adds an instance that takes the current weights, version 1 if there are none.
func serve(t *testing.T, s *Machine, name string, capacity int) Handle {
	t.Helper()
	o, _, err := s.Join(start(), name, capacity, true)
	require.NoError(t, err)
	if o.Version == 0 {
		require.NoError(t, s.Begin(start(), 1))
		s.Finish(start())
		awaited, late, _ := s.Targets()
		require.Len(t, awaited, 1)
		require.Empty(t, late)
		o = awaited[0]
	}
	require.NoError(t, s.Published(start(), o, took(capacity)))
	return o.Instance
}

// machine returns a machine with instances a, b, … of the given capacities.
func machine(t *testing.T, change func(*Config), capacities ...int) *Machine {
	t.Helper()
	cfg := config()
	if change != nil {
		change(&cfg)
	}
	s := New(cfg, start())
	for i, capacity := range capacities {
		serve(t, s, string(rune('a'+i)), capacity)
	}
	s.Take()
	return s
}

// ask enqueues a request of n responses and returns the resulting grants.
func ask(t *testing.T, s *Machine, n int) (*Request, []Grant) {
	t.Helper()
	r := NewRequest(request(n, 8))
	_, err := s.Enqueue(start(), r)
	require.NoError(t, err)
	return r, slices.Clone(s.Take().Grants)
}

// lines returns events as text.
func lines(events []Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.String())
	}
	return all
}

func TestSettleUpdatesHealth(t *testing.T) {
	t.Parallel()
	fault := errors.New("502")
	stale := fmt.Errorf("holds 0: %w", inference.ErrStale)
	good := Outcome{Completions: responses(8)}
	for name, c := range map[string]struct {
		outcomes []Outcome // of consecutive calls
		again    bool      // the weights are the weights are published again during the last call
		state    Health
		events   []string // of the last call
		failed   int64
		restarts int
		publish  bool // is ordered
		probe    bool // is ordered
	}{
		"answer": {outcomes: []Outcome{good}, state: Healthy},
		"fault": {outcomes: []Outcome{{Err: fault}}, state: Suspect,
			events: []string{"instance b: SUSPECT, was HEALTHY: 502"}, failed: 1},
		"fault, answer": {outcomes: []Outcome{{Err: fault}, good}, state: Healthy,
			events: []string{"instance b: HEALTHY, was SUSPECT"}, failed: 1},
		"two faults": {outcomes: []Outcome{{Err: fault}, {Err: fault}}, state: Suspect, failed: 2},
		"three faults": {outcomes: []Outcome{{Err: fault}, {Err: fault}, {Err: fault}}, state: Dead,
			events: []string{"instance b: DEAD, was SUSPECT: 502"}, failed: 3, restarts: 1, probe: true},
		"fault from before a publish": {outcomes: []Outcome{{Err: fault}}, again: true, state: Healthy, failed: 1},
		"stale": {
			outcomes: []Outcome{{Err: stale}}, state: Stale,
			events: []string{"instance b: STALE, was HEALTHY: holds 0: stale weights"},
			failed: 1, restarts: 1, publish: true,
		},
		"stuck": {outcomes: []Outcome{{Err: ErrStuck}}, state: Retired,
			events: []string{"instance b: RETIRED, was HEALTHY: " + ErrStuck.Error()}, failed: 1},
		"stuck, abandoned": {outcomes: []Outcome{{Err: ErrStuck, Abandoned: true}}, state: Retired,
			events: []string{"instance b: RETIRED, was HEALTHY: " + ErrStuck.Error()}, failed: 1},
		"invalid":           {outcomes: []Outcome{{Err: inference.ErrInvalid}}, state: Healthy},
		"abandoned":         {outcomes: []Outcome{{Err: fault, Abandoned: true}}, state: Healthy},
		"answer, abandoned": {outcomes: []Outcome{{Completions: responses(8), Abandoned: true}}, state: Healthy},
		"fault, then stale": {outcomes: []Outcome{{Err: fault}, {Err: stale}}, state: Stale,
			events: []string{"instance b: STALE, was SUSPECT: holds 0: stale weights"}, failed: 2, restarts: 1,
			publish: true},
		"two faults, answer": {outcomes: []Outcome{{Err: fault}, {Err: fault}, good}, state: Healthy,
			events: []string{"instance b: HEALTHY, was SUSPECT"}, failed: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := machine(t, nil, 1)
			ask(t, s, 9) // keeps a busy, so that b gets the other requests
			b := serve(t, s, "b", 8)
			for _, o := range c.outcomes {
				s.Take()
				_, grants := ask(t, s, 1)
				require.Len(t, grants, 1)
				require.Equal(t, b, grants[0].Instance)
				if c.again {
					require.NoError(t, s.Published(start(), s.health.order(s.members.get(b)), took(8)))
				}
				s.Settle(start(), grants[0], o)
			}
			e := s.Take()
			require.Equal(t, c.events, lines(e.Events))
			require.Equal(t, c.publish, len(e.Orders) == 1)
			require.Equal(t, c.probe, len(e.Probes) == 1)
			i := s.Status(start()).Instances[1]
			require.Equal(t, c.state, i.State)
			require.Equal(t, c.failed, i.Failed)
			require.Equal(t, c.restarts, i.Restarts)
			require.Zero(t, i.Requests)
		})
	}
}

func TestPublishedUpdatesHealth(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		before   Health // set without a cause
		out      Publication
		err      string
		events   []string
		restarts int
		probe    bool
	}{
		"taken":         {before: Stale, out: took(3), events: []string{"instance a: HEALTHY, was STALE"}},
		"by a dead one": {before: Dead, out: took(3), events: []string{"instance a: HEALTHY, was DEAD"}},
		"other checksum": {
			before: Stale, out: Publication{Checksum: "sum", Reported: "other"},
			err: "publish version 2 to a: instance reports checksum other, expected sum",
			events: []string{"instance a: still STALE: publish version 2 to a: instance reports checksum other, " +
				"expected sum"}, restarts: 1, probe: true,
		},
		"fails": {
			before: Stale, out: Publication{Err: down}, err: "publish version 2 to a: connection refused",
			events:   []string{"instance a: still STALE: publish version 2 to a: connection refused"},
			restarts: 1, probe: true,
		},
		"fails on a dead one": {before: Dead, out: Publication{Err: down},
			err: "publish version 2 to a: connection refused", probe: true},
		"abandoned": {before: Stale, out: Publication{Err: down, Abandoned: true},
			err: "publish version 2 to a: connection refused", probe: true},
		"stuck": {
			before: Stale, out: Publication{Err: ErrStuck}, err: "publish version 2 to a: " + ErrStuck.Error(),
			events: []string{"instance a: RETIRED, was STALE: publish version 2 to a: " + ErrStuck.Error()},
		},
		"while draining": {before: Draining, out: took(3)},
		"fails while draining": {before: Draining, out: Publication{Err: down},
			err: "publish version 2 to a: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := machine(t, nil, 1)
			require.NoError(t, s.Begin(start(), 2))
			a := s.members.all[0]
			s.health.set(start(), a, c.before, nil)
			s.Take()
			o := s.health.order(a)
			err := s.Published(start(), o, c.out)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
			e := s.Take()
			require.Equal(t, c.events, lines(e.Events))
			require.Equal(t, c.probe, len(e.Probes) == 1)
			require.Equal(t, c.restarts, s.Status(start()).Instances[0].Restarts)

			// An outage counts as one failure; a newer publish voids this one.
			_ = s.Published(start(), o, c.out)
			require.Equal(t, c.restarts, s.Status(start()).Instances[0].Restarts)
			require.NoError(t, s.Begin(start(), 3))
			s.Take()
			require.NoError(t, s.Published(start(), o, c.out))
			require.Empty(t, s.Take().Events)
		})
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	fault, stale, invalid := errors.New("502"), inference.ErrStale, fmt.Errorf("prompt: %w", inference.ErrInvalid)
	type try struct {
		on    Handle
		out   Outcome
		next  Next
		after time.Duration
		err   string
	}
	for name, c := range map[string]struct {
		instances int
		tries     []try
		invalid   int64
		retries   int64
	}{
		"answered":  {instances: 1, tries: []try{{on: 1, next: Answered}}},
		"cancelled": {instances: 1, tries: []try{{on: 1, out: Outcome{Err: fault, Abandoned: true}, next: Cancelled}}},
		"other instance": {instances: 2, retries: 1, tries: []try{
			{on: 1, out: Outcome{Err: fault}, next: Retry, after: time.Second, err: "generate on a: 502"},
			{on: 2, next: Answered},
		}},
		"pauses double up to a limit": {instances: 1, retries: 3, tries: []try{
			{on: 1, out: Outcome{Err: fault}, next: Retry, after: time.Second, err: "generate on a: 502"},
			{on: 1, out: Outcome{Err: fault}, next: Retry, after: 2 * time.Second, err: "generate on a: 502"},
			{on: 1, out: Outcome{Err: fault}, next: Retry, after: 3 * time.Second, err: "generate on a: 502"},
			{on: 1, out: Outcome{Err: fault}, next: Failed,
				err: "generate: failed after 4 attempts: generate on a: 502"},
		}},
		"a stale answer does not count": {instances: 2, retries: 4, tries: []try{
			{on: 1, out: Outcome{Err: stale}, next: Retry, after: time.Second, err: "generate on a: stale weights"},
			{on: 2, out: Outcome{Err: fault}, next: Retry, after: 2 * time.Second, err: "generate on b: 502"},
			{on: 2, out: Outcome{Err: fault}, next: Retry, after: 3 * time.Second, err: "generate on b: 502"},
			{on: 2, out: Outcome{Err: fault}, next: Retry, after: 3 * time.Second, err: "generate on b: 502"},
			{on: 2, out: Outcome{Err: fault}, next: Failed,
				err: "generate: failed after 4 attempts: generate on b: 502"},
		}},
		"invalid for the only one": {instances: 1, invalid: 1,
			tries: []try{{on: 1, out: Outcome{Err: invalid}, next: Failed,
				err: "generate on a: prompt: invalid request"}}},
		"invalid for two": {instances: 3, invalid: 1, retries: 1, tries: []try{
			{on: 1, out: Outcome{Err: invalid}, next: Retry, after: time.Second,
				err: "generate on a: prompt: invalid request"},
			{on: 2, out: Outcome{Err: invalid}, next: Failed, err: "generate on b: prompt: invalid request"},
		}},
		"invalid for one": {instances: 2, retries: 1, tries: []try{
			{on: 1, out: Outcome{Err: invalid}, next: Retry, after: time.Second,
				err: "generate on a: prompt: invalid request"}, {on: 2, next: Answered},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := machine(t, func(c *Config) {
				c.Attempts, c.DeadAfter, c.Backoff, c.BackoffMax = 4, 100, time.Second, 3*time.Second
			}, make([]int, c.instances)...)
			r := NewRequest(request(1, 8))
			for i, try := range c.tries {
				_, err := s.Enqueue(start(), r)
				require.NoError(t, err)
				grants := s.Take().Grants
				require.Len(t, grants, 1, "try %d", i)
				require.Equal(t, try.on, grants[0].Instance, "try %d", i)
				if try.out.Err == nil {
					try.out.Completions = responses(8)
				}
				v := s.Settle(start(), grants[0], try.out)
				require.Equal(t, try.next, v.Next, "try %d", i)
				require.Equal(t, try.after, v.Pause, "try %d", i)
				if try.err != "" {
					require.EqualError(t, v.Err, try.err)
				}
			}
			status := s.Status(start())
			require.Equal(t, c.invalid, status.Invalid)
			require.Equal(t, c.retries, status.Retries)
			if name == "invalid for one" {
				require.Equal(t, Suspect, status.Instances[0].State, "it refused what another instance answered")
			}
		})
	}
}

// Below the floor requests wait, but no longer than EmptyWait and Watchdog.
func TestPatience(t *testing.T) {
	t.Parallel()
	s := machine(t, func(c *Config) { c.MinServing = 2 }, 1)
	at := func(d time.Duration) time.Time { return start().Add(d) }
	r := NewRequest(request(1, 8))
	left, err := s.Enqueue(at(30*time.Second), r)
	require.NoError(t, err)
	require.Equal(t, 90*time.Second, left, "too few serve since the start")
	require.Empty(t, s.Take().Grants)
	left, err = s.Look(at(time.Minute), r)
	require.NoError(t, err)
	require.Equal(t, time.Minute, left)
	_, err = s.Look(at(2*time.Minute), r)
	require.EqualError(t, err, "too few instances serve: 1 for 2m0s, expected at least 2")
	require.Zero(t, s.Status(start()).Queued)

	s = machine(t, func(c *Config) { c.Ahead = 0 }, 1)
	_, grants := ask(t, s, 1)
	require.Len(t, grants, 1)
	left, err = s.Enqueue(at(time.Minute), r)
	require.NoError(t, err)
	require.Equal(t, 2*time.Minute, left)
	left, err = s.Look(at(45*time.Minute), r)
	require.NoError(t, err)
	require.Equal(t, time.Minute, left, "the watchdog is next")
	_, err = s.Look(at(46*time.Minute), r)
	require.EqualError(t, err, "watchdog: 1 requests are queued and made no progress for 45m0s")
}
