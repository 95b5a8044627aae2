package pipeline

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// longest returns the time of the slowest path that ends with a rank's chunk. On it each
// chunk follows the same chunk of the rank before, or the previous chunk of the same rank.
func longest(durations [][]float64, send float64, rank, chunk int) float64 {
	before := 0.0
	if rank > 0 {
		before = max(before, longest(durations, send, rank-1, chunk)+send)
	}
	if chunk > 0 {
		before = max(before, longest(durations, send, rank, chunk-1))
	}
	return before + durations[rank][chunk]
}

func TestHandOnIsTheSlowestPath(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 34))
	for range 500 {
		ranks, chunks, send := 1+random.IntN(5), 1+random.IntN(6), random.Float64()*float64(random.IntN(2))
		durations := make([][]float64, ranks)
		for r := range durations {
			for range chunks {
				durations[r] = append(durations[r], random.ExpFloat64()*float64(random.IntN(4)))
			}
		}
		want := longest(durations, send, ranks-1, chunks-1)
		if ranks > 1 {
			want += send
		}
		require.Equal(t, want, HandOn(durations, send))
	}
}

func TestHandOn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		durations [][]float64
		send      float64
		want      float64
	}{
		{"no ranks", nil, 1, 0},
		{"no chunks", [][]float64{{}, {}}, 1, 0},
		{"a single rank sends nothing", [][]float64{{1, 2}}, 5, 3},
		{"one chunk passes along and back", [][]float64{{1}, {2}, {4}}, 0.5, 8.5},
		{"a slow rank", [][]float64{{1, 1, 1}, {3, 3, 3}}, 0, 10},
		{"a slow chunk", [][]float64{{1, 5, 1}, {1, 1, 1}}, 0, 8},
	} {
		require.Equal(t, row.want, HandOn(row.durations, row.send), row.name)
	}
}

// Equal chunks wait for exactly the share of the formula.
func TestEqualChunksGiveHandOnBubble(t *testing.T) {
	t.Parallel()
	for ranks := 1; ranks <= 8; ranks++ {
		for chunks := 1; chunks <= 20; chunks++ {
			durations := make([][]float64, ranks)
			for r := range durations {
				for range chunks {
					durations[r] = append(durations[r], 0.5)
				}
			}
			took := HandOn(durations, 0)
			require.Equal(t, HandOnBubble(ranks, chunks), (took-0.5*float64(chunks))/took)
		}
	}
	require.Equal(t, 1.0/3, HandOnBubble(2, 2))
}
