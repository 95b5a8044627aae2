package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One trainer has the place until it goes, or is not heard of for so long.
func TestOneTrainer(t *testing.T) {
	t.Parallel()
	var l Lease
	start := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	require.NoError(t, l.Check("", at(0)))
	require.NoError(t, l.Take("a", "run a", at(0)))
	require.NoError(t, l.Check("a", at(0)))
	require.EqualError(t, l.Take("b", "run b", at(1500*time.Millisecond)),
		`it serves "run a", heard of 1s ago, expected no other trainer: take it out of that run, or end the run; one that is gone is forgotten after 1m0s`)
	require.Error(t, l.Check("", at(Time-1)), "nor is it anybody's")
	require.NoError(t, l.Take("a", "run a", at(Time-1)))
	require.Error(t, l.Take("b", "run b", at(Time)), "the one that has it was heard of since")
	l.Free("b")
	require.Equal(t, "run a", l.Holder(at(Time)))
	require.Empty(t, l.Holder(at(2*Time)))
	require.NoError(t, l.Take("b", "run b", at(2*Time)))
	require.Error(t, l.Take("a", "run a", at(2*Time)), "who was silent comes too late")
	l.Free("b")
	require.Empty(t, l.Holder(at(2*Time)))
	require.NoError(t, l.Take("a", "run a", at(2*Time)))
}
