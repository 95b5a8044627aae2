package attention

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/rollout"
)

func TestAddGroup(t *testing.T) {
	t.Parallel()
	var l Layout
	root, leaves := l.AddGroup([]int32{7, 8}, [][]int32{{1, 2, 3}, {4}})
	require.Equal(t, 0, root)
	require.Equal(t, []int{1, 2}, leaves)
	root, leaves = l.AddGroup([]int32{9}, [][]int32{{5, 6}})
	require.Equal(t, 3, root)
	require.Equal(t, []int{4}, leaves)

	require.Equal(t, 9, l.Rows())
	require.Equal(t, []int32{7, 8, 1, 2, 3, 4, 9, 5, 6}, l.Tokens)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 2, 0, 1, 2}, l.Positions)
	require.Equal(t, []npu.Segment{
		{Start: 0, Len: 2, Parent: -1},
		{Start: 2, Len: 3, Parent: 0},
		{Start: 5, Len: 1, Parent: 0},
		{Start: 6, Len: 1, Parent: -1},
		{Start: 7, Len: 2, Parent: 3},
	}, l.Segments)
	require.Equal(t, []Target{
		{Row: 1, Token: 1, Segment: 1}, {Row: 2, Token: 2, Segment: 1, Offset: 1},
		{Row: 3, Token: 3, Segment: 1, Offset: 2},
		{Row: 1, Token: 4, Segment: 2},
		{Row: 6, Token: 5, Segment: 4}, {Row: 7, Token: 6, Segment: 4, Offset: 1},
	}, l.Targets)
	require.NoError(t, l.Validate())

	l.Reset()
	require.Equal(t, 0, l.Rows())
	require.NoError(t, l.Validate())
	require.Empty(t, l.Segments)
	require.Empty(t, l.Targets)
	require.Equal(t, 0, l.Add(-1, []int32{3}, true))
	require.Empty(t, l.Targets, "nothing predicts a sequence's first token")
}

func TestEmptySegments(t *testing.T) {
	t.Parallel()
	var l Layout
	root := l.Add(-1, nil, true)
	child := l.Add(root, []int32{1, 2}, true)
	empty := l.Add(child, nil, true)
	l.Add(empty, []int32{3}, true)
	require.NoError(t, l.Validate())
	require.Equal(t, []int32{0, 1, 2}, l.Positions)
	require.Equal(t, []Target{{Row: 0, Token: 2, Segment: 1, Offset: 1}, {Row: 1, Token: 3, Segment: 3}}, l.Targets)
	require.True(t, l.Visible(2, 0))
	require.Equal(t, 3, l.SegmentOf(2))
}

// In random forests, every row's path to its root is a plain causal sequence.
func TestForestsAgainstSequences(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var l Layout
		var paths [][]int // rows of each segment's sequence, from its root
		var bears []bool
		for i := range 1 + rng.IntN(12) {
			parent := rng.IntN(i+1) - 1
			tokens := make([]int32, rng.IntN(5))
			for j := range tokens {
				tokens[j] = rng.Int32N(100)
			}
			loss := rng.IntN(2) == 0
			first := l.Rows()
			require.Equal(t, i, l.Add(parent, tokens, loss))
			var path []int
			if parent >= 0 {
				path = append(path, paths[parent]...)
			}
			for j := range tokens {
				path = append(path, first+j)
			}
			paths, bears = append(paths, path), append(bears, loss)
		}
		require.NoError(t, l.Validate())

		var targets []Target
		visible := make([][]bool, l.Rows())
		for row := range visible {
			visible[row] = make([]bool, l.Rows())
		}
		for i, s := range l.Segments {
			path := paths[i]
			for at := len(path) - int(s.Len); at < len(path); at++ {
				row := path[at]
				require.Equal(t, i, l.SegmentOf(row))
				require.EqualValues(t, at, l.Positions[row])
				for _, key := range path[:at+1] {
					visible[row][key] = true
				}
				if bears[i] && at > 0 {
					targets = append(targets, Target{
						Row: int32(path[at-1]), Token: l.Tokens[row], Segment: int32(i), Offset: int32(row) - s.Start,
					})
				}
			}
		}
		require.Equal(t, targets, append([]Target(nil), l.Targets...))
		for query := range visible {
			for key := range visible {
				require.Equal(t, visible[query][key], l.Visible(query, key), "seed %d: row %d, key %d",
					seed, query, key)
			}
		}
	}
}

// A leaf's last token is a target without a row.
func TestAddResponse(t *testing.T) {
	t.Parallel()
	var l Layout
	root := l.Add(-1, []int32{7, 8}, false)
	l.AddResponse(root, []int32{1, 2, 3})
	l.AddResponse(root, []int32{4})
	l.AddResponse(root, nil)
	l.AddResponse(-1, []int32{5})
	require.Equal(t, []int32{7, 8, 1, 2}, l.Tokens)
	require.Equal(t, []int32{0, 1, 2, 3}, l.Positions)
	require.Equal(t, []Target{
		{Row: 1, Token: 1, Segment: 1, Offset: 0},
		{Row: 2, Token: 2, Segment: 1, Offset: 1},
		{Row: 3, Token: 3, Segment: 1, Offset: 2},
		{Row: 1, Token: 4, Segment: 2, Offset: 0},
	}, l.Targets)
	require.NoError(t, l.Validate())
}

// A trajectory is one segment. Only the tokens of chosen spans are targets, and nothing after the last of them
// has a row.
func TestAddTrajectory(t *testing.T) {
	t.Parallel()
	spans := rollout.Trajectory{
		{From: rollout.Environment, IDs: []int32{1}},
		{From: rollout.Policy, IDs: []int32{2, 3}, Trained: true},
		{From: rollout.Environment, IDs: []int32{4, 5}},
		{From: rollout.Policy, IDs: []int32{6}, Trained: true},
		{From: rollout.Policy, IDs: []int32{7, 8}},
		{From: rollout.Environment, IDs: []int32{9}},
	}
	for _, c := range []struct {
		isTarget func(*rollout.Span) bool
		rows     int
		offsets  []int32
	}{
		{rollout.IsTrained, 5, []int32{1, 2, 5}},
		{rollout.IsPolicy, 7, []int32{1, 2, 5, 6, 7}},
		{func(*rollout.Span) bool { return true }, 8, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{func(*rollout.Span) bool { return false }, 0, nil},
	} {
		var l Layout
		root := l.Add(-1, []int32{20, 21}, false)
		segment := l.AddTrajectory(root, spans, c.isTarget)
		require.Equal(t, c.rows, TrajectoryRows(spans, c.isTarget))
		require.Equal(t, append([]int32{20, 21}, spans.IDs()[:c.rows]...), l.Tokens)
		var offsets []int32
		for _, target := range l.Targets {
			require.EqualValues(t, segment, target.Segment)
			require.EqualValues(t, target.Offset+1, target.Row)
			require.Equal(t, spans.IDs()[target.Offset], target.Token)
			offsets = append(offsets, target.Offset)
		}
		require.Equal(t, c.offsets, offsets)
		require.NoError(t, l.Validate())
	}
	var l Layout // without a row before its first token, that token is no target
	l.AddTrajectory(-1, rollout.Demonstrated([]int32{5, 6}), rollout.IsTrained)
	require.Equal(t, []Target{{Row: 0, Token: 6, Segment: 0, Offset: 1}}, l.Targets)
}

func TestAddPanicsOnUnknownParent(t *testing.T) {
	t.Parallel()
	var l Layout
	require.Panics(t, func() { l.Add(0, []int32{1}, false) })
	require.Panics(t, func() { l.Add(-2, []int32{1}, false) })
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*Layout)
		want   string
	}{
		{"positions missing", func(l *Layout) { l.Positions = l.Positions[:3] },
			"3 positions, expected 6, one per token"},
		{"gap", func(l *Layout) { l.Segments[1].Start = 3 }, "segment 1 starts at row 3, expected 2"},
		{"negative length", func(l *Layout) { l.Segments[1].Len = -1 }, "segment 1 has -1 rows"},
		{"too long", func(l *Layout) { l.Segments[2].Len = 9 }, "segment 2 has 9 rows, expected 0 to 1"},
		{"rows left", func(l *Layout) { l.Segments = l.Segments[:2] }, "segments hold 5 rows, expected 6"},
		{"own parent", func(l *Layout) { l.Segments[1].Parent = 1 }, "segment 1 has parent 1"},
		{"position", func(l *Layout) { l.Positions[5] = 5 }, "row 5 of segment 2 has position 5, expected 2"},
		{"token", func(l *Layout) { l.Tokens[0] = -1 }, "row 0 has token -1"},
		{"target's segment", func(l *Layout) { l.Targets[0].Segment = 3 }, "target 0 is in segment 3"},
		{"target's offset", func(l *Layout) { l.Targets[0].Offset = 4 }, "target 0 is token 4 of segment 1"},
		{"target's row", func(l *Layout) { l.Targets[3].Row = 4 }, "target 3 is predicted by row 4, expected 1"},
		{"target's token", func(l *Layout) { l.Targets[1].Token = 9 }, "target 1 is token id 9, expected 2"},
		{"root's first token", func(l *Layout) { l.Targets[0] = Target{Row: -1, Token: 7} },
			"target 0 is predicted by row -1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var l Layout
			l.AddGroup([]int32{7, 8}, [][]int32{{1, 2, 3}, {4}})
			require.NoError(t, l.Validate())
			row.change(&l)
			require.ErrorContains(t, l.Validate(), row.want)
		})
	}
}

func TestResetKeepsMemory(t *testing.T) {
	var l Layout
	prompt, response := make([]int32, 10), make([]int32, 30)
	fill := func() {
		l.Reset()
		root := l.Add(-1, prompt, false)
		for range 8 {
			l.Add(root, response, true)
		}
	}
	fill()
	require.Zero(t, testing.AllocsPerRun(10, fill))
}
