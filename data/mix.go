package data

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/easyrl/easyrl/internal/splitmix"
)

// mixBlock is the number of positions over which each part of a mixture gets its
// exact share.
const mixBlock = 4096

// mixture is the weighted order of several parts.
type mixture struct {
	parts  []*Order
	first  []int // index of each part's first prompt
	counts []int // each part's places in a block
	seed   uint64
	block  int     // block that turns and before describe, or -1
	turns  []uint8 // part of each place in the block
	before []int32 // earlier places of the same part in the block
}

// maxParts is the maximum number of parts in a mixture.
const maxParts = 256

// NewMix returns the endless order of the prompts of several parts. Part k has
// sizes[k] prompts and gets a share of weights[k] over the sum of the weights,
// regardless of its size. At returns an index into the concatenated parts.
// Without weights, the order is newOrder of all prompts. Sizes and weights must
// be positive.
//
// Like newOrder's, a mixture's order depends only on its arguments and the
// position. Positions form blocks of 4096. In a block, part k has
// 4096·weights[k]/sum(weights) places, rounded down. The remaining places go to
// the largest remainders, ties to the first part. A part left with no place takes
// one from the part with the most. Places are spread evenly: the i-th of a part's
// n places has the key (2i+1)/n, and places are sorted by key, ties by part. With
// shuffle, block b is then permuted like epoch b of newOrder with the seed
// mix(seed+1). The j-th place of part k, counted from the start, is position j of
// newOrder(sizes[k], mix(seed+2+k), shuffle).
func NewMix(sizes []int, weights []float64, seed uint64, shuffle bool) (*Order, error) {
	total := 0
	for k, n := range sizes {
		if n < 1 || n > math.MaxInt32-total {
			return nil, fmt.Errorf("mix prompts: part %d has %d prompts, expected 1 to %d in total", k+1, n,
				math.MaxInt32)
		}
		total += n
	}
	switch {
	case len(sizes) == 0:
		return nil, errors.New("mix prompts: no parts")
	case len(weights) == 0:
		return newOrder(total, seed, shuffle), nil
	case len(sizes) > maxParts:
		return nil, fmt.Errorf("mix prompts: %d parts, expected at most %d", len(sizes), maxParts)
	case len(weights) != len(sizes):
		return nil, fmt.Errorf("mix prompts: %d weights for %d parts, expected one each", len(weights), len(sizes))
	}
	for k, w := range weights {
		if !(w > 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("mix prompts: weight %d is %g, expected more than 0", k+1, w)
		}
	}
	m := &mixture{counts: shares(weights), seed: seed, block: -1}
	at := 0
	for k, n := range sizes {
		m.parts = append(m.parts, newOrder(n, splitmix.Mix(seed+2+uint64(k)), shuffle))
		m.first = append(m.first, at)
		at += n
	}
	return &Order{n: total, seed: seed, shuffle: shuffle, epoch: -1, mixture: m}, nil
}

// shares returns each part's places in a block.
func shares(weights []float64) []int {
	top := slices.Max(weights) // scale first, because the sum could overflow
	sum := 0.0
	for _, w := range weights {
		sum += w / top
	}
	counts := make([]int, len(weights))
	left := mixBlock
	rests := make([]float64, len(weights))
	places := make([]int, len(weights))
	for k, w := range weights {
		share := mixBlock * (w / top) / sum
		counts[k] = int(share)
		rests[k], places[k] = share-float64(counts[k]), k
		left -= counts[k]
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(rests[b], rests[a]) })
	for i := range left {
		counts[places[i%len(places)]]++
	}
	for k := range counts {
		if counts[k] == 0 {
			most := 0
			for j, n := range counts {
				if n > counts[most] {
					most = j
				}
			}
			counts[most]--
			counts[k]++
		}
	}
	return counts
}

// at returns the index of the prompt at a position.
func (m *mixture) at(i int, shuffle bool) int {
	block, place := i/mixBlock, i%mixBlock
	if m.block < 0 || shuffle && block != m.block {
		m.arrange(block, shuffle)
	}
	k := m.turns[place]
	return m.first[k] + m.parts[k].At(block*m.counts[k]+int(m.before[place]))
}

// arrange lays out a block; without shuffle, all blocks are the same.
func (m *mixture) arrange(block int, shuffle bool) {
	type turn struct {
		part uint8
		i    int
	}
	turns := make([]turn, 0, mixBlock)
	for k, n := range m.counts {
		for i := range n {
			turns = append(turns, turn{uint8(k), i})
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { // compares (2i+1)/n in integers
		return cmp.Compare((2*a.i+1)*m.counts[b.part], (2*b.i+1)*m.counts[a.part])
	})
	m.turns, m.before = make([]uint8, mixBlock), make([]int32, mixBlock)
	for i, t := range turns {
		m.turns[i] = t.part
	}
	if shuffle {
		o := newOrder(mixBlock, splitmix.Mix(m.seed+1), true)
		for i := range m.turns {
			m.turns[i] = turns[o.At(block*mixBlock+i)].part
		}
	}
	seen := make([]int32, len(m.counts))
	for i, k := range m.turns {
		m.before[i] = seen[k]
		seen[k]++
	}
	m.block = block
}
