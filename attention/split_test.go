package attention

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// forest returns a layout of random trees. Segments with loss may have none, one or more tokens.
func forest(random *rand.Rand) *Layout {
	var l Layout
	for range 1 + random.IntN(8) {
		parent := random.IntN(len(l.Segments)+1) - 1
		tokens := make([]int32, random.IntN(6))
		for i := range tokens {
			tokens[i] = random.Int32N(100)
		}
		if random.IntN(2) == 0 {
			l.AddResponse(parent, tokens)
		} else {
			l.Add(parent, tokens, random.IntN(3) > 0)
		}
	}
	return &l
}

// context returns the tokens that a target is predicted from, and the target.
func context(l *Layout, t Target) []int32 {
	var out []int32
	for row := range l.Rows() {
		if l.Visible(int(t.Row), row) {
			out = append(out, l.Tokens[row])
		}
	}
	return append(out, t.Token, l.Positions[t.Row])
}

// Parts hold each target once, with the same context, in at most the given number of rows unless
// a single segment needs more.
func TestSplit(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 33))
	cut := 0
	for range 2000 {
		l := forest(random)
		before := l.Clone()
		rows := 1 + random.IntN(l.Rows()+2)
		var seen []int
		parts := l.Split(rows)
		for _, p := range parts {
			require.NoError(t, p.Layout.Validate())
			require.Len(t, p.Layout.Targets, len(p.Targets))
			segments := map[int32]bool{}
			for i, of := range p.Targets {
				require.Equal(t, context(l, l.Targets[of]), context(p.Layout, p.Layout.Targets[i]))
				require.Equal(t, l.Targets[of].Offset, p.Layout.Targets[i].Offset)
				segments[p.Layout.Targets[i].Segment] = true
			}
			require.True(t, p.Layout.Rows() <= rows || len(segments) == 1, "%d rows, at most %d", p.Layout.Rows(), rows)
			seen = append(seen, p.Targets...)
		}
		slices.Sort(seen)
		require.Len(t, seen, len(l.Targets))
		require.Equal(t, len(seen), len(slices.Compact(seen)), "each target once")
		require.Equal(t, before, l)
		if len(parts) > 1 {
			cut++
		}
	}
	require.Greater(t, cut, 500)
}

func TestSplitGroup(t *testing.T) {
	t.Parallel()
	var l Layout
	root := l.Add(-1, []int32{1, 2, 3}, false)
	for _, response := range [][]int32{{4, 5, 6}, {7}, {8, 9, 10}} {
		l.AddResponse(root, response)
	}
	other := l.Add(-1, []int32{11}, false)
	l.AddResponse(other, []int32{12, 13})
	require.Equal(t, 9, l.Rows())
	parts := l.Split(5)
	require.Len(t, parts, 3)
	require.Equal(t, []int32{1, 2, 3, 4, 5}, parts[0].Layout.Tokens, "the response of one token has no row")
	require.Equal(t, []int{0, 1, 2, 3}, parts[0].Targets)
	require.Equal(t, []int32{1, 2, 3, 8, 9}, parts[1].Layout.Tokens)
}

func TestDivisible(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		build func(l *Layout)
		want  bool
	}{
		{"one response", func(l *Layout) { l.AddResponse(l.Add(-1, []int32{1, 2}, false), []int32{3, 4}) }, false},
		{"two responses", func(l *Layout) {
			root := l.Add(-1, []int32{1, 2}, false)
			l.AddResponse(root, []int32{3, 4})
			l.AddResponse(root, []int32{5, 6})
		}, true},
		{"responses without rows", func(l *Layout) {
			root := l.Add(-1, []int32{1, 2}, false)
			l.AddResponse(root, []int32{3})
			l.AddResponse(root, []int32{5})
		}, false},
		{"turns of one conversation", func(l *Layout) {
			l.Add(l.Add(-1, []int32{1, 2}, true), []int32{3, 4}, true)
		}, false},
		{"two sequences", func(l *Layout) {
			l.Add(-1, []int32{1, 2}, true)
			l.Add(-1, []int32{3, 4}, true)
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var l Layout
			test.build(&l)
			require.Equal(t, test.want, l.Divisible())
		})
	}
}
