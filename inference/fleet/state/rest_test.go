package state

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// busy returns the outcome of a call that an instance postpones.
func busy(after time.Duration) Outcome {
	return Outcome{Err: &inference.BusyError{After: after, Err: errors.New("status 429")}}
}

func TestBusyInstanceRests(t *testing.T) {
	t.Parallel()
	s := machine(t, func(c *Config) { c.Attempts = 1 }, 4, 4)
	r, grants := ask(t, s, 1)
	require.EqualValues(t, 1, grants[0].Instance)
	v := s.Settle(start(), grants[0], busy(30*time.Second))
	require.Equal(t, Retry, v.Next, "the only try is not used up")
	require.Zero(t, v.Pause)
	e := s.Take()
	require.Equal(t, []Rest{{1, 30 * time.Second}}, e.Rests)
	require.Equal(t, []string{"fleet: a rests for 30s: status 429"}, lines(e.Events))
	_, err := s.Enqueue(start(), r)
	require.NoError(t, err)
	for range 4 {
		_, more := ask(t, s, 1)
		for _, g := range more {
			require.EqualValues(t, 2, g.Instance)
		}
	}
	st := s.Status(start())
	require.Equal(t, Healthy, st.Instances[0].State)
	require.Equal(t, Resting, st.Instances[0].Shown)
	require.Equal(t, 2, st.Size)
	require.Zero(t, st.Retries)
	require.Zero(t, st.Instances[0].Failed)
}

func TestRestsAreCappedAndExtended(t *testing.T) {
	t.Parallel()
	s := machine(t, nil, 4)
	_, first := ask(t, s, 1)
	_, second := ask(t, s, 1)
	s.Settle(start(), first[0], busy(0))
	require.Equal(t, []Rest{{1, time.Second}}, s.Take().Rests, "the instance names no time")
	s.Settle(start(), second[0], busy(time.Hour))
	require.Equal(t, []Rest{{1, time.Minute}}, s.Take().Rests)
	_, waits := ask(t, s, 1)
	require.Empty(t, waits)
	s.Rested(start().Add(time.Second), 1)
	require.Empty(t, s.Take().Grants, "it has asked for more")
	s.Rested(start().Add(time.Minute), 1)
	require.Len(t, s.Take().Grants, 1)
	require.Equal(t, Healthy.String(), s.Status(start()).Instances[0].Shown)
}

// While all instances rest, requests wait, and the fleet says for which instance.
func TestAllInstancesRest(t *testing.T) {
	t.Parallel()
	s := machine(t, nil, 4, 4)
	for at, after := range []time.Duration{30 * time.Second, 10 * time.Second} {
		r, grants := ask(t, s, 1)
		require.Len(t, grants, 1)
		s.Settle(start(), grants[0], busy(after))
		require.NotNil(t, r)
		want := []string{"fleet: a rests for 30s: status 429"}
		if at == 1 {
			want = []string{"fleet: b rests for 10s: status 429",
				"fleet: all instances rest; requests wait for b, which rests for another 10s"}
		}
		require.Equal(t, want, lines(s.Take().Events))
	}
	_, grants := ask(t, s, 1)
	require.Empty(t, grants)
	s.Rested(start().Add(10*time.Second), 2)
	grants = s.Take().Grants
	require.Len(t, grants, 1)
	require.EqualValues(t, 2, grants[0].Instance)
	s.Settle(start().Add(11*time.Second), grants[0], busy(10*time.Second))
	require.Empty(t, s.Take().Events, "once a minute is enough")
}
