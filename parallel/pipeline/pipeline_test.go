package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each letter of a script is an event or the operation that Next must return: i for Input, g
// for Gradient, F, B and . for Forward, Backward and Wait.
func TestStageDecides(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		stage, stages int
		script        string
		inFlight      int
	}{
		{"nothing is there", 0, 3, "..", 0},
		{"an input that waits", 0, 3, "iF.", 1},
		{"the limit of the first stage", 0, 3, "iiiiiFFF..", 3},
		{"the limit of a middle stage", 1, 3, "iiiFF.", 2},
		{"the limit of the last stage", 2, 3, "iiF.", 1},
		{"a single stage alternates", 0, 1, "iiF.gBF.gB.", 0},
		{"a backward pass goes first", 0, 3, "iiFgBF.", 1},
		{"a backward pass makes room", 1, 3, "iiiiFF.gBF.gBF.", 2},
		{"two gradients before an input", 0, 3, "iiiiFFFggBBFi F.", 3},
		{"a gradient counts until it is taken", 1, 3, "iiiFFgBF", 2},
		{"the queue runs dry and fills again", 1, 3, "iF.gB..iiFF.ggBB.", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := NewStage(row.stage, row.stages)
			for i, c := range strings.ReplaceAll(row.script, " ", "") {
				switch c {
				case 'i':
					s.Input()
				case 'g':
					s.Gradient()
				default:
					require.Equal(t, strings.IndexRune(".FB", c), int(s.Next()), "letter %d", i)
				}
				require.LessOrEqual(t, s.InFlight(), row.stages-row.stage)
			}
			require.Equal(t, row.inFlight, s.InFlight())
		})
	}
}

func TestStagePanics(t *testing.T) {
	t.Parallel()
	s := NewStage(0, 2)
	require.Panics(t, s.Gradient)
	s.Input()
	require.Panics(t, s.Gradient, "its forward pass has not begun")
	s.Next()
	s.Gradient()
	require.Panics(t, s.Gradient, "the only one in flight has its gradient")
	for _, stage := range []int{-1, 2} {
		require.Panics(t, func() { NewStage(stage, 2) })
	}
	require.Panics(t, func() { NewStage(0, 0) })
}

// orders returns each stage's operations, such as "F0 B0".
func orders(spans []Span, stages int) []string {
	ops := make([][]string, stages)
	for _, s := range spans {
		ops[s.Stage] = append(ops[s.Stage], fmt.Sprintf("%c%d", ".FB"[s.Op], s.Micro))
	}
	var out []string
	for _, o := range ops {
		out = append(out, strings.Join(o, " "))
	}
	return out
}

// same returns the durations of equal micro-batches, and their arrivals, all 0.
func same(stages, micros int, d Durations) ([][]Durations, []float64) {
	durations := make([][]Durations, micros)
	for m := range durations {
		durations[m] = make([]Durations, stages)
		for s := range durations[m] {
			durations[m][s] = d
		}
	}
	return durations, make([]float64, micros)
}

func TestTextbookOrder(t *testing.T) {
	t.Parallel()
	durations, arrivals := same(3, 5, Durations{Forward: 1, Backward: 2})
	require.Equal(t, []string{
		"F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
		"F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
		"F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
	}, orders(Replay(durations, arrivals, 0), 3))
}

// Whatever the times, as long as they are the same for all micro-batches and stages, a stage
// runs stages-stage-1 forward passes, then forward and backward passes by turns, then the
// other backward passes.
func TestTextbookOrders(t *testing.T) {
	t.Parallel()
	for stages := 1; stages <= 6; stages++ {
		for micros := 1; micros <= 12; micros++ {
			var want []string
			for stage := range stages {
				var ops []string
				warm := min(stages-stage-1, micros)
				for m := range micros + warm {
					if m < micros {
						ops = append(ops, fmt.Sprintf("F%d", m))
					}
					if m >= warm {
						ops = append(ops, fmt.Sprintf("B%d", m-warm))
					}
				}
				want = append(want, strings.Join(ops, " "))
			}
			for _, d := range []Durations{{1, 0, 1}, {1, 0, 2}, {3, 0, 1}, {0.1, 0, 0.3}, {0.7, 0.2, 1.9}} {
				for _, send := range []float64{0, 0.01, 0.5, 10} {
					durations, arrivals := same(stages, micros, d)
					require.Equal(t, want, orders(Replay(durations, arrivals, send), stages), "%v, send %v", d, send)
				}
			}
		}
	}
}

func TestBubble(t *testing.T) {
	t.Parallel()
	require.Zero(t, Bubble(1, 1))
	require.Equal(t, 0.75, Bubble(4, 1))
	require.Equal(t, 3.0/11, Bubble(4, 8))
}
