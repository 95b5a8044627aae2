package state

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

func TestFloorIsReportedOutsideAPublish(t *testing.T) {
	t.Parallel()
	s := machine(t, func(c *Config) { c.MinServing = 2 }, 1, 1)
	require.NoError(t, s.Begin(start(), 2))
	require.Equal(t, []string{"instance a: STALE, was HEALTHY", "instance b: STALE, was HEALTHY"},
		lines(s.Take().Events))
	s.Finish(start())
	low := "fleet: too few instances serve: 0, expected at least 2; waiting up to 2m0s"
	require.Equal(t, []string{low}, lines(s.Take().Events))
	s.Finish(start())
	require.Empty(t, s.Take().Events, "reported once")
	awaited, _, _ := s.Targets()
	for _, o := range awaited {
		require.NoError(t, s.Published(start(), o, took(1)))
	}
	require.Equal(t, []string{"instance a: HEALTHY, was STALE", "instance b: HEALTHY, was STALE",
		"fleet: enough instances serve again"}, lines(s.Take().Events))
}

// An instance that takes new weights is shown as updating, not as stale, unless that fails.
// A draining one is shown as drained once its requests have ended.
func TestShownStates(t *testing.T) {
	t.Parallel()
	s := machine(t, nil, 1, 1)
	shown := func() (all []string) {
		for _, i := range s.Status(start()).Instances {
			all = append(all, i.Shown)
		}
		return all
	}
	require.Equal(t, []string{"HEALTHY", "HEALTHY"}, shown())
	require.NoError(t, s.Begin(start(), 2))
	require.Equal(t, []string{"UPDATING", "UPDATING"}, shown())
	awaited, _, _ := s.Targets()
	require.NoError(t, s.Published(start(), awaited[0], took(1)))
	require.Equal(t, []string{"HEALTHY", "UPDATING"}, shown())
	require.Error(t, s.Published(start(), awaited[1], Publication{Err: errors.New("connection refused")}))
	require.Equal(t, []string{"HEALTHY", "STALE"}, shown())
	s.Finish(start())

	_, grants := ask(t, s, 1)
	require.Len(t, grants, 1)
	require.True(t, s.Drain(start(), grants[0].Instance))
	require.Equal(t, "DRAINING", shown()[0])
	s.Settle(start(), grants[0], Outcome{Abandoned: true})
	require.Equal(t, "DRAINED", shown()[0])

	empty := machine(t, nil)
	_, _, err := empty.Join(start(), "a", 1, false)
	require.NoError(t, err)
	require.Equal(t, "STALE", empty.Status(start()).Instances[0].Shown, "there are no weights yet")
}

// A request that avoids b waits for a. When a publish takes a out of service, b still holds
// the older weights and gets nothing.
func TestPublishGivesNoWorkToStaleInstances(t *testing.T) {
	t.Parallel()
	s := machine(t, func(c *Config) { c.Ahead = 0 }, 1, 1)
	ask(t, s, 1)
	r, second := ask(t, s, 1)
	s.Settle(start(), second[0], Outcome{Err: errors.New("502")})
	_, err := s.Enqueue(start(), r)
	require.NoError(t, err)
	require.Empty(t, s.Take().Grants)
	require.NoError(t, s.Begin(start(), 2))
	require.Empty(t, s.Take().Grants)
	awaited, _, _ := s.Targets()
	require.NoError(t, s.Published(start(), awaited[1], took(1)))
	grants := s.Take().Grants
	require.Len(t, grants, 1, "only b serves")
	require.EqualValues(t, 2, grants[0].Version)
}

func TestJoinReplacesRetiredInstance(t *testing.T) {
	t.Parallel()
	s := machine(t, nil, 1)
	_, _, err := s.Join(start(), "a", 1, false)
	require.EqualError(t, err, "an instance of that name is already in the fleet")
	_, grants := ask(t, s, 1)
	s.Settle(start(), grants[0], Outcome{Err: ErrStuck})
	o, replaced, err := s.Join(start(), "a", 1, false)
	require.NoError(t, err)
	require.Equal(t, grants[0].Instance, replaced)
	require.NoError(t, s.Published(start(), o, took(1)))
	require.Len(t, s.Status(start()).Instances, 1)
	require.False(t, s.Remove(start(), replaced), "the replaced instance has left")
	require.Equal(t, 1, s.Status(start()).Size)
}

// An instance that answers probes but refuses the weights fails each time.
func TestProbesEndInPublishOrRetirement(t *testing.T) {
	t.Parallel()
	s := machine(t, func(c *Config) { c.DeadAfter, c.MaxRestarts = 1, 2 }, 1)
	_, grants := ask(t, s, 1)
	s.Settle(start(), grants[0], Outcome{Err: errors.New("EOF")})
	p := s.Take().Probes[0]
	for range 2 {
		require.True(t, s.KeepProbing(p))
		o, ok := s.Probed(p)
		require.True(t, ok)
		require.Error(t, s.Published(start(), o, Publication{Checksum: "sum", Reported: "none"}))
		require.Empty(t, s.Take().Probes, "one probe at a time")
	}
	require.Equal(t, Retired, s.Status(start()).Instances[0].State)
	require.False(t, s.KeepProbing(p))
	require.NoError(t, s.Begin(start(), 2))
	_, ok := s.Probed(p)
	require.False(t, ok)
	awaited, late, _ := s.Targets()
	require.Empty(t, append(awaited, late...))
}

func TestClosedMachineRefusesAll(t *testing.T) {
	t.Parallel()
	s := machine(t, func(c *Config) { c.Ahead = 0 }, 1)
	_, grants := ask(t, s, 1)
	r, _ := ask(t, s, 1)
	s.Close()
	e := s.Take()
	require.Len(t, e.Refusals, 1)
	require.Same(t, r, e.Refusals[0].Request)
	require.ErrorIs(t, e.Refusals[0].Err, inference.ErrClosed)
	_, err := s.Enqueue(start(), r)
	require.ErrorIs(t, err, inference.ErrClosed)
	_, _, err = s.Join(start(), "b", 1, false)
	require.ErrorIs(t, err, inference.ErrClosed)
	require.ErrorIs(t, s.Begin(start(), 2), inference.ErrClosed)
	s.Settle(start(), grants[0], Outcome{Err: inference.ErrClosed})
	require.Empty(t, s.Take().Events)
	awaited, late, _ := s.Targets()
	require.Empty(t, append(awaited, late...))
	require.Empty(t, s.Status(start()).Instances)
}
