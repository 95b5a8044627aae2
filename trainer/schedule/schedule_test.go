package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// script performs all actions of a loop and returns them: p2 publishes version 2, b3v2 starts batch 3 with version
// 2, and t1 trains step 1.
func script(l *Loop) string {
	var done []string
	for {
		switch a := l.Next(); a.Kind {
		case Publish:
			l.Published()
			done = append(done, fmt.Sprintf("p%d", a.Version))
		case Sample:
			l.Started(a.Batch)
			done = append(done, fmt.Sprintf("b%dv%d", a.Batch, a.Version))
		case Train:
			l.Trained(a.Step)
			done = append(done, fmt.Sprintf("t%d", a.Step))
		default:
			return strings.Join(done, " ")
		}
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		staleness, steps, trained int
		want                      string
	}{
		{0, 3, 0, "p1 b1v1 t1 p2 b2v2 t2 p3 b3v3 t3"},
		{0, 3, 2, "p3 b3v3 t3"},
		{0, 3, 3, ""},
		{0, 3, 5, ""},
		{0, 0, 0, ""},
		{1, 4, 0, "p1 b1v1 b2v1 t1 p2 b3v2 t2 p3 b4v3 t3 t4"},
		{2, 4, 0, "p1 b1v1 b2v1 b3v1 t1 p2 b4v2 t2 t3 t4"},
		{1, 4, 2, "p3 b3v3 b4v3 t3 t4"},
		{9, 2, 0, "p1 b1v1 b2v1 t1 t2"},
	} {
		require.Equal(t, c.want, script(New(Rule{c.staleness}, c.steps, c.trained)), "%+v", c)
	}
}

// Whatever the rule, each step trains its batch once, with a version that the rule allows, and no more versions than
// the rule says are in use at once.
func TestEveryBatchIsTrainedOnce(t *testing.T) {
	t.Parallel()
	for staleness := range 5 {
		for steps := range 8 {
			for trained := range steps {
				rule := Rule{staleness}
				l := New(rule, steps, trained)
				sampled := map[int]int64{}
				next := trained + 1
				for a := l.Next(); a.Kind != End; a = l.Next() {
					switch a.Kind {
					case Publish:
						require.Equal(t, l.Current(), a.Version)
						l.Published()
					case Sample:
						require.NotContains(t, sampled, a.Batch)
						sampled[a.Batch] = a.Version
						l.Started(a.Batch)
					case Train:
						require.Equal(t, next, a.Step)
						require.NoError(t, rule.Check(a.Step, sampled[a.Batch]))
						require.LessOrEqual(t, l.Current()-sampled[a.Batch]+2, int64(rule.Versions()))
						next++
						l.Trained(a.Step)
					}
				}
				require.Equal(t, steps+1, next)
				require.Len(t, sampled, steps-trained)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, Rule{}.Check(3, 3))
	require.EqualError(t, Rule{}.Check(3, 2), "version 2 in step 3, expected 3")
	require.EqualError(t, Rule{1}.Check(3, 4), "version 4 in step 3, expected 2 to 3")
	require.NoError(t, Rule{1}.Check(3, 2))
	require.NoError(t, Rule{5}.Check(3, 1))
	require.EqualError(t, Rule{5}.Check(3, 0), "version 0 in step 3, expected 1 to 3")
}

// A report that does not match the next action is a programmer's error.
func TestReportsOutOfOrderPanic(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { New(Rule{}, 2, 0).Started(1) }, "not published")
	require.Panics(t, func() { New(Rule{}, 2, 0).Trained(1) }, "not sampled")
	l := New(Rule{}, 2, 0)
	l.Published()
	require.Panics(t, func() { l.Started(2) })
	l.Started(1)
	require.Panics(t, func() { l.Trained(2) })
	l.Trained(1)
	require.False(t, l.IsPublished())
}
