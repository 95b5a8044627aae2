package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A trainer holds the lease until it releases it or stays silent for too long.
func TestLease(t *testing.T) {
	t.Parallel()
	var l lease
	start := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	require.NoError(t, l.check("", at(0)))
	require.NoError(t, l.take("a", "run a", at(0)))
	require.NoError(t, l.check("a", at(0)))
	require.EqualError(t, l.take("b", "run b", at(1500*time.Millisecond)),
		`instance is held by trainer "run a", last heard from 1s ago. Remove the instance from that run or end the `+
			`run; a silent trainer loses it after 1m0s`)
	require.Error(t, l.check("", at(leaseTime-1)), "an empty id does not match")
	require.NoError(t, l.take("a", "run a", at(leaseTime-1)))
	require.Error(t, l.take("b", "run b", at(leaseTime)), "a renewed the lease")
	l.free("b")
	require.Equal(t, "run a", l.holder(at(leaseTime)))
	require.Empty(t, l.holder(at(2*leaseTime)))
	require.NoError(t, l.take("b", "run b", at(2*leaseTime)))
	require.Error(t, l.take("a", "run a", at(2*leaseTime)), "a lost the lease")
	l.free("b")
	require.Empty(t, l.holder(at(2*leaseTime)))
	require.NoError(t, l.take("a", "run a", at(2*leaseTime)))
}
