package pipeline

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplaySpans(t *testing.T) {
	t.Parallel()
	durations := [][]Durations{
		{{Forward: 1, Backward: 2}, {Forward: 3, Loss: 4, Backward: 5}},
		{{Forward: 2, Backward: 3}, {Forward: 1, Loss: 1, Backward: 1}},
	}
	require.Equal(t, []Span{
		{0, 1, Forward, 10, 12}, // the second micro-batch arrives first
		{0, 0, Forward, 12, 13},
		{1, 1, Forward, 12.5, 13.5},
		{1, 1, Backward, 14.5, 15.5},
		{1, 0, Forward, 15.5, 18.5},
		{0, 1, Backward, 16, 19},
		{1, 0, Backward, 22.5, 27.5},
		{0, 0, Backward, 28, 30},
	}, Replay(durations, []float64{11, 10}, 0.5))
}

// Operations that take no time run in the order of their dependencies.
func TestReplayOrderOfTies(t *testing.T) {
	t.Parallel()
	durations, arrivals := same(2, 2, Durations{})
	require.Equal(t, []Span{
		{0, 0, Forward, 0, 0},
		{0, 1, Forward, 0, 0},
		{1, 0, Forward, 0, 0},
		{1, 0, Backward, 0, 0},
		{0, 0, Backward, 0, 0},
		{1, 1, Forward, 0, 0},
		{1, 1, Backward, 0, 0},
		{0, 1, Backward, 0, 0},
	}, Replay(durations, arrivals, 0))

	// A gradient and an input that arrive together: the backward pass goes first.
	durations, _ = same(2, 2, Durations{Forward: 1, Backward: 1})
	require.Equal(t, []string{"F0 B0 F1 B1", "F0 B0 F1 B1"}, orders(Replay(durations, []float64{0, 3}, 0), 2))
}

func TestReplayEdges(t *testing.T) {
	t.Parallel()
	require.Empty(t, Replay(nil, nil, 0))
	require.Empty(t, Replay([][]Durations{{}}, []float64{0}, 0), "no stages")
	good, at := [][]Durations{{{}, {}}, {{}, {}}}, []float64{-1, 0}
	require.Len(t, Replay(good, at, 1), 8)
	require.Panics(t, func() { Replay(good, at[:1], 0) })
	require.Panics(t, func() { Replay([][]Durations{{{}, {}}, {{}}}, at, 0) })
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		require.Panics(t, func() { Replay(good, at, bad) })
		for _, d := range []Durations{{Forward: bad}, {Loss: bad}, {Backward: bad}} {
			require.Panics(t, func() { Replay([][]Durations{{{}, d}}, at[:1], 0) })
		}
	}
	require.Panics(t, func() { Replay(good, []float64{0, math.NaN()}, 0) })
}

func TestIdle(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		spans  []Span
		stages int
		want   float64
	}{
		{"none", nil, 3, 0},
		{"no time", []Span{{0, 0, Forward, 5, 5}}, 3, 0},
		{"busy", []Span{{0, 0, Forward, 5, 6}, {0, 0, Backward, 6, 8}}, 1, 0},
		{"a gap", []Span{{0, 0, Forward, 5, 6}, {0, 0, Backward, 7, 9}}, 1, 0.25},
		{"rounding", []Span{{0, 0, Forward, 0, 0.3}, {0, 0, Backward, 0.3, 0.9}}, 1, 0},
		{"by turns", []Span{{0, 0, Forward, 5, 6}, {1, 0, Forward, 6, 7}}, 2, 0.5},
		{"a stage without work", []Span{{1, 0, Forward, 5, 6}}, 4, 0.75},
		{"in no order", []Span{{1, 0, Forward, 8, 9}, {0, 0, Forward, 5, 7}}, 2, 0.625},
	} {
		require.Equal(t, row.want, Idle(row.spans, row.stages), row.name)
	}
}

// Equal micro-batches wait for exactly the textbook's share.
func TestEqualTimesGiveBubble(t *testing.T) {
	t.Parallel()
	for stages := 1; stages <= 8; stages++ {
		for micros := 1; micros <= 24; micros++ {
			for _, d := range []Durations{{1, 0, 1}, {1, 0, 2}, {3, 0, 1}, {0.25, 0, 0.5}} {
				durations, arrivals := same(stages, micros, d)
				require.Equal(t, Bubble(stages, micros), Idle(Replay(durations, arrivals, 0), stages),
					"%d stages, %d micro-batches, %v", stages, micros, d)
			}
			durations, arrivals := same(stages, micros, Durations{0.1, 0, 0.23})
			require.InDelta(t, Bubble(stages, micros), Idle(Replay(durations, arrivals, 0), stages), 1e-12)
		}
	}
}

// end returns when the last operation ends.
func end(spans []Span) float64 {
	return slices.MaxFunc(spans, func(a, b Span) int { return cmp.Compare(a.End, b.End) }).End
}

// The last stage holds one micro-batch, so each one waits for its loss.
func TestLossIsWaitedFor(t *testing.T) {
	t.Parallel()
	for stages := 1; stages <= 5; stages++ {
		for micros := 1; micros <= 9; micros++ {
			durations, arrivals := same(stages, micros, Durations{Forward: 1, Loss: 3, Backward: 2})
			require.Equal(t, float64(3*(stages-1)+micros*6), end(Replay(durations, arrivals, 0)))
		}
	}
}

// If micro-batches arrive in two parts, the pipeline fills once more at most.
func TestDryQueueCostsOneRefill(t *testing.T) {
	t.Parallel()
	const round = 3.0 // forward and backward
	for stages := 1; stages <= 6; stages++ {
		for before := 1; before <= 8; before++ {
			for after := 1; after <= 8; after++ {
				durations, arrivals := same(stages, before+after, Durations{Forward: 1, Backward: 2})
				refill := round * float64(stages-1)
				first := round*float64(before) + refill // the end of the first part, alone
				whole := round*float64(before+after) + refill
				require.Equal(t, whole, end(Replay(durations, arrivals, 0)))
				for gap := 0.0; gap <= first+10; gap += 0.5 {
					for m := before; m < before+after; m++ {
						arrivals[m] = gap
					}
					got := end(Replay(durations, arrivals, 0))
					if gap >= first {
						require.Equal(t, gap+round*float64(after)+refill, got)
						continue
					}
					require.GreaterOrEqual(t, got, whole)
					require.LessOrEqual(t, got, whole+refill, "%d stages, %d+%d micro-batches, gap %v", stages,
						before, after, gap)
				}
			}
		}
	}
}

// world is a random replay, whose spans it checks.
type world struct {
	t         *testing.T
	durations [][]Durations
	arrivals  []float64
	send      float64
	spans     []Span
	at        map[[3]int]Span // by operation, stage and micro-batch
	strict    bool            // every operation takes time
}

func newWorld(t *testing.T, random *rand.Rand) *world {
	stages, micros := 1+random.IntN(6), 1+random.IntN(15)
	w := &world{t: t, at: map[[3]int]Span{}, strict: random.IntN(2) == 0}
	seconds := func() float64 {
		switch {
		case random.IntN(3) == 0: // many ties
			return float64(1 + random.IntN(3))
		case !w.strict && random.IntN(3) == 0:
			return 0
		}
		return random.ExpFloat64() + 1e-3
	}
	if random.IntN(2) == 0 {
		w.send = seconds()
	}
	clock := random.NormFloat64()
	for range micros {
		row := make([]Durations, stages)
		for s := range row {
			row[s] = Durations{Forward: seconds(), Backward: seconds()}
		}
		row[stages-1].Loss = seconds()
		w.durations, w.arrivals = append(w.durations, row), append(w.arrivals, clock)
		if random.IntN(3) == 0 {
			clock += 5 * seconds()
		}
	}
	if random.IntN(2) == 0 {
		random.Shuffle(micros, func(i, j int) { w.arrivals[i], w.arrivals[j] = w.arrivals[j], w.arrivals[i] })
	}
	w.spans = Replay(w.durations, w.arrivals, w.send)
	return w
}

// ready returns when what an operation depends on is there.
func (w *world) ready(op Op, stage, micro int) float64 {
	d, last := w.durations[micro][stage], len(w.durations[0])-1
	switch {
	case op == Forward && stage == 0:
		return w.arrivals[micro]
	case op == Forward:
		return w.at[[3]int{int(Forward), stage - 1, micro}].End + w.send
	case stage == last:
		return w.at[[3]int{int(Forward), stage, micro}].End + d.Loss
	}
	return w.at[[3]int{int(Backward), stage + 1, micro}].End + w.send
}

// each checks that all operations are there once, in order of their start, and take their
// time.
func (w *world) each() {
	micros, stages := len(w.durations), len(w.durations[0])
	require.Len(w.t, w.spans, 2*micros*stages)
	require.True(w.t, slices.IsSortedFunc(w.spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) }))
	for _, s := range w.spans {
		key := [3]int{int(s.Op), s.Stage, s.Micro}
		require.NotContains(w.t, w.at, key)
		took := w.durations[s.Micro][s.Stage].Forward
		if s.Op == Backward {
			took = w.durations[s.Micro][s.Stage].Backward
		}
		require.Equal(w.t, s.Start+took, s.End)
		w.at[key] = s
	}
}

// stage checks that a stage runs one operation at a time, within its limit, and by the rule:
// what starts is the oldest of its kind and starts as soon as it can; a forward pass starts
// only if no gradient is there.
func (w *world) stage(stage int, order []int) {
	micros, limit := len(w.durations), len(w.durations[0])-stage
	forward, backward := 0, 0
	free := math.Inf(-1)
	for _, s := range w.spans {
		if s.Stage != stage {
			continue
		}
		require.Equal(w.t, max(free, w.ready(s.Op, stage, s.Micro)), s.Start)
		if s.Op == Forward {
			require.Equal(w.t, order[forward], s.Micro)
			if forward > backward {
				gradient := w.ready(Backward, stage, order[backward])
				require.LessOrEqual(w.t, s.Start, gradient)
				require.False(w.t, w.strict && s.Start == gradient)
			}
			forward++
			require.LessOrEqual(w.t, forward-backward, limit)
		} else {
			require.Equal(w.t, order[backward], s.Micro)
			if s.Start > free && forward < micros && forward-backward < limit {
				require.GreaterOrEqual(w.t, w.ready(Forward, stage, order[forward]), s.Start,
					"it could have run a forward pass")
			}
			backward++
		}
		free = s.End
	}
	require.Equal(w.t, []int{micros, micros}, []int{forward, backward})
}

func TestRandomReplays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		w := newWorld(t, rand.New(rand.NewPCG(seed, 34)))
		w.each()
		order := make([]int, len(w.arrivals))
		for m := range order {
			order[m] = m
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(w.arrivals[a], w.arrivals[b]) })
		for stage := range w.durations[0] {
			w.stage(stage, order)
		}
		idle := Idle(w.spans, len(w.durations[0]))
		require.True(t, idle >= 0 && idle < 1, idle)
		require.Equal(t, w.spans, Replay(w.durations, w.arrivals, w.send), "seed %d: the same spans again", seed)
	}
}
