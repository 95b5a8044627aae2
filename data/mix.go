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

// mixture is the weighted order of several parts. NewMix specifies it.
type mixture struct {
	parts  []*Order // order of each part's prompts
	first  []int    // index of each part's first prompt in the concatenated parts
	counts []int    // number of each part's places in a block
	seed   uint64
	block  int     // block that turns and before describe, or -1 for none
	turns  []uint8 // part of each place in the block
	before []int32 // for each place in the block, the number of earlier places of the same part
}

// maxParts is the maximum number of parts in a mixture; a turn is a uint8.
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
		if w <= 0 || math.IsNaN(w) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("mix prompts: weight %d is %g, expected more than 0", k+1, w)
		}
	}
	m := &mixture{counts: shares(weights), seed: seed, block: -1}
	first := 0
	for k, n := range sizes {
		m.parts = append(m.parts, newOrder(n, splitmix.Mix(seed+2+uint64(k)), shuffle))
		m.first = append(m.first, first)
		first += n
	}
	return &Order{n: total, seed: seed, shuffle: shuffle, epoch: -1, mixture: m}, nil
}

// shares returns the number of each part's places in a block.
func shares(weights []float64) []int {
	largest := slices.Max(weights) // the weights are scaled by it, because their sum could overflow
	sum := 0.0
	for _, w := range weights {
		sum += w / largest
	}
	counts := make([]int, len(weights))
	remainders := make([]float64, len(weights))
	byRemainder := make([]int, len(weights)) // parts, the largest remainder first
	left := mixBlock
	for k, w := range weights {
		share := mixBlock * (w / largest) / sum
		counts[k] = int(share)
		remainders[k] = share - float64(counts[k])
		byRemainder[k] = k
		left -= counts[k]
	}
	slices.SortStableFunc(byRemainder, func(a, b int) int { return cmp.Compare(remainders[b], remainders[a]) })
	for i := range left {
		counts[byRemainder[i%len(byRemainder)]]++
	}
	for k := range counts {
		if counts[k] == 0 {
			counts[slices.Index(counts, slices.Max(counts))]--
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

// arrange sets turns and before for a block. Without shuffle, all blocks are the same.
func (m *mixture) arrange(block int, shuffle bool) {
	type turn struct {
		part uint8
		i    int // number of earlier turns of the part
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
	m.turns = make([]uint8, mixBlock)
	m.before = make([]int32, mixBlock)
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
