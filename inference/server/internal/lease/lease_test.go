package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A trainer holds the lease until it releases it or stays silent for too long.
func TestOneTrainer(t *testing.T) {
	t.Parallel()
	var l Lease
	start := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	require.NoError(t, l.Check("", at(0)))
	require.NoError(t, l.Take("a", "run a", at(0)))
	require.NoError(t, l.Check("a", at(0)))
	require.EqualError(t, l.Take("b", "run b", at(1500*time.Millisecond)),
		`instance is held by trainer "run a", last heard from 1s ago. Remove the instance from that run or end the run; a silent trainer loses it after 1m0s`)
	require.Error(t, l.Check("", at(Time-1)), "an empty id does not match")
	require.NoError(t, l.Take("a", "run a", at(Time-1)))
	require.Error(t, l.Take("b", "run b", at(Time)), "a renewed the lease")
	l.Free("b")
	require.Equal(t, "run a", l.Holder(at(Time)))
	require.Empty(t, l.Holder(at(2*Time)))
	require.NoError(t, l.Take("b", "run b", at(2*Time)))
	require.Error(t, l.Take("a", "run a", at(2*Time)), "a lost the lease")
	l.Free("b")
	require.Empty(t, l.Holder(at(2*Time)))
	require.NoError(t, l.Take("a", "run a", at(2*Time)))
}
