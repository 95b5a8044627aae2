package state

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLateAnswers(t *testing.T) {
	t.Parallel()
	var p pace
	const patience = time.Second / 2
	require.Equal(t, 2*time.Minute, p.late(500, patience), "no answer yet")
	p.learn(4*time.Second, 500)
	p.learn(3*time.Second, 500)
	require.Equal(t, 4*time.Second, p.late(500, patience))
	require.Equal(t, 4*time.Second, p.late(1, patience), "no answer to a smaller request")
	require.Equal(t, 32*time.Second, p.late(4000, patience), "eight times the tokens")
	p.learn(10*time.Millisecond, 1)
	require.Equal(t, 4*time.Second, p.late(500, patience), "a small request says nothing about larger ones")
	require.Equal(t, patience, p.late(1, patience))
	p.turn()
	p.learn(2*time.Second, 500)
	require.Equal(t, 4*time.Second, p.late(500, patience), "as under the weights before")
	p.turn()
	p.turn() // a publish without a request
	require.Equal(t, 2*time.Second, p.late(500, patience))
}

// watched returns a machine of two instances on which answers take 10 seconds, and a call
// of the first.
func watched(t *testing.T, change func(*Config)) (*Machine, Grant) {
	t.Helper()
	s := machine(t, change, 4, 4)
	_, grants := ask(t, s, 1)
	s.Settle(start().Add(10*time.Second), grants[0], Outcome{Completions: responses(8)})
	_, grants = ask(t, s, 1)
	s.Take()
	require.EqualValues(t, 1, grants[0].Instance)
	return s, grants[0]
}

func TestWatchesLateCall(t *testing.T) {
	t.Parallel()
	s, g := watched(t, nil)
	limit := 1250 * time.Millisecond
	require.Equal(t, Watch{Wait: 2 * time.Second, Ask: limit}, s.Watch(start().Add(3*time.Second), g, 0, 0),
		"watched from half time")
	require.Equal(t, Watch{Wait: 2500 * time.Millisecond, Ask: limit},
		s.Watch(start().Add(6*time.Second), g, time.Hour, 0), "not late")
	late := start().Add(10 * time.Second)
	require.Equal(t, Watch{Wait: time.Second, Ask: limit}, s.Watch(late, g, 4*time.Second, 0),
		"not quiet for long enough")
	require.Empty(t, s.Take().Events)
	w := s.Watch(late.Add(5*time.Second), g, 5*time.Second, 0)
	require.EqualError(t, w.Err, "no answer for 15s and no sign of work for 5s; sending 1 request to other instances")
	e := s.Take()
	require.Equal(t, []string{"instance a: DEAD, was HEALTHY: " + w.Err.Error()}, lines(e.Events))
	require.Len(t, e.Probes, 1)
	v := s.Settle(late.Add(5*time.Second), g, Outcome{Err: w.Err})
	require.Equal(t, Retry, v.Next)
	require.Equal(t, 1, s.Status(late).Instances[0].Restarts)
	_, err := s.Enqueue(late.Add(5*time.Second), g.Request)
	require.NoError(t, err)
	grants := s.Take().Grants
	require.Len(t, grants, 1)
	require.EqualValues(t, 2, grants[0].Instance)
	require.NoError(t, s.Watch(late.Add(time.Hour), g, time.Hour, 0).Err, "the call has ended")
}

// The fleet waits for a silent instance that it cannot do without, and says so.
func TestWaitsForLastInstance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		drain  bool
	}{
		"only one serves":         {drain: true},
		"fewer than enough serve": {change: func(c *Config) { c.MinServing = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, g := watched(t, c.change)
			if c.drain {
				s.Drain(start(), 2)
				s.Take()
			}
			now := start().Add(20 * time.Second)
			require.NoError(t, s.Watch(now, g, 10*time.Second, 0).Err)
			require.Equal(t, []string{"fleet: waiting for a with 1 request: no answer for 20s and no sign of work " +
				"for 10s, and too few others serve"}, lines(s.Take().Events))
			require.NoError(t, s.Watch(now.Add(10*time.Second), g, 20*time.Second, 0).Err)
			require.Empty(t, s.Take().Events, "once a minute is enough")
			require.NoError(t, s.Watch(now.Add(time.Minute), g, 70*time.Second, 0).Err)
			require.Len(t, s.Take().Events, 1)
		})
	}
}

// The last instance is waited for while it does not respond. When it responds again and is idle, it
// has lost its requests and gets them again, each time after twice as long.
func TestLastInstanceThatLostItsRequests(t *testing.T) {
	t.Parallel()
	s := machine(t, nil, 4)
	_, grants := ask(t, s, 1)
	now := start().Add(10 * time.Second)
	s.Settle(now, grants[0], Outcome{Completions: responses(8)})
	r, grants := ask(t, s, 1)
	now = start().Add(20 * time.Second)
	limit := 5 * time.Second // half of what the answer took
	for _, row := range []struct {
		name        string
		quiet, idle time.Duration
		failed      int // tries before
		resends     bool
	}{
		{"has just been asked", limit - 1, limit - 1, 0, false},
		{"does not respond", time.Hour, 0, 0, false},
		{"has just come back", time.Hour, limit - 1, 0, false},
		{"is idle", limit, limit, 0, true},
		{"is idle again", time.Hour, 2*limit - 1, 1, false},
		{"is idle for longer", time.Hour, 2 * limit, 1, true},
		{"is idle at the last try", time.Hour, 16*limit - 1, 4, false},
	} {
		r.failed = row.failed
		w := s.Watch(now, grants[0], row.quiet, row.idle)
		require.Equal(t, row.resends, w.Err != nil, row.name)
		if !row.resends {
			require.Positive(t, w.Ask, row.name)
			s.Take()
			continue
		}
		require.ErrorContains(t, w.Err, "but it responds; sending 1 request again", row.name)
		e := s.Take()
		require.Equal(t, []string{"instance a: DEAD, was HEALTHY: " + w.Err.Error()}, lines(e.Events)[:1], row.name)
		require.Len(t, e.Probes, 1, row.name)
		require.Equal(t, Retry, s.Settle(now, grants[0], Outcome{Err: w.Err}).Next, row.name)
		left, err := s.Enqueue(now, r)
		require.NoError(t, err, row.name)
		require.Equal(t, config().EmptyWait, left, "%s: the deadline of a fleet without instances", row.name)
		o, ok := s.Probed(e.Probes[0])
		require.True(t, ok, row.name)
		require.NoError(t, s.Published(now, o, took(4)), row.name)
		require.False(t, s.KeepProbing(e.Probes[0]), row.name)
		grants = slices.Clone(s.Take().Grants)
		require.Len(t, grants, 1, row.name)
		now = now.Add(20 * time.Second)
	}
}

// After two publishes, one waits for a slow instance about as long as those took, and the
// next does not wait for it.
func TestPublishPatience(t *testing.T) {
	t.Parallel()
	s := New(config(), start())
	now := start()
	var orders []Order
	for _, name := range []string{"a", "b"} {
		_, _, err := s.Join(now, name, 4, true)
		require.NoError(t, err)
	}
	publish := func(version int64) (awaited, failed []Order, patience time.Duration) {
		require.NoError(t, s.Begin(now, version))
		return s.Targets()
	}
	take := func(o Order) { require.NoError(t, s.Published(now, o, took(4))) }
	orders, _, patience := publish(1)
	require.Equal(t, config().Watchdog, patience, "unknown")
	now = now.Add(5 * time.Second)
	take(orders[0])
	now = now.Add(5 * time.Second)
	take(orders[1])
	s.Finish(now)

	orders, failed, patience := publish(2)
	require.Len(t, orders, 2)
	require.Empty(t, failed)
	require.Equal(t, 20*time.Second, patience)
	take(orders[0])
	s.Finish(now) // without b

	orders, failed, patience = publish(3)
	require.Len(t, orders, 1)
	require.Len(t, failed, 1)
	require.Equal(t, 20*time.Second, patience)
	now = now.Add(time.Hour)
	take(failed[0])
	take(orders[0])
	s.Finish(now)

	orders, failed, _ = publish(4)
	require.Len(t, orders, 2, "b has taken a version")
	require.Empty(t, failed)
}
