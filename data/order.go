package data

import (
	"math/bits"

	"github.com/easyrl/easyrl/internal/splitmix"
)

// Order is the endless order in which a run takes its prompts: epoch after epoch,
// each a permutation of all prompts. It depends only on the number of prompts and
// the seed, so that a run resumes from an integer. It is not safe for concurrent
// use.
//
// An epoch's permutation is a Fisher-Yates shuffle from the last place down:
// place i swaps with a place drawn from 0..i. Draw number c (from 0) of epoch e
// is output c of SplitMix64 with the seed mix(mix(seed) + e), where mix is that
// generator's finalizer (package splitmix). The draw is reduced to a number below
// n by taking the upper word of its 128-bit product with n; a draw whose lower
// word is below 2^64 mod n is rejected (Lemire 2019).
type Order struct {
	n       int // number of prompts
	seed    uint64
	shuffle bool
	epoch   int      // epoch whose permutation places holds, or -1 for none
	places  []int32  // index of the prompt at each place of the epoch
	mixture *mixture // weighted parts, which define the order; nil without weights
}

// newOrder returns the order of n prompts, at least one. Without shuffle, every
// epoch has the original order.
func newOrder(n int, seed uint64, shuffle bool) *Order {
	if n < 1 || n > 1<<31-1 {
		panic("data: order needs 1 to 2^31-1 prompts")
	}
	return &Order{n: n, seed: seed, shuffle: shuffle, epoch: -1}
}

// At returns the index of the prompt at position i, from 0. The first access to
// an epoch shuffles it.
func (o *Order) At(i int) int {
	if i < 0 {
		panic("data: negative position in order")
	}
	if o.mixture != nil {
		return o.mixture.at(i, o.shuffle)
	}
	epoch, place := i/o.n, i%o.n
	if !o.shuffle {
		return place
	}
	if epoch != o.epoch {
		o.permute(epoch)
	}
	return int(o.places[place])
}

// permute sets places for an epoch.
func (o *Order) permute(epoch int) {
	if o.places == nil {
		o.places = make([]int32, o.n)
	}
	for i := range o.places {
		o.places[i] = int32(i)
	}
	draws := generator{key: splitmix.Mix(splitmix.Mix(o.seed) + uint64(epoch))}
	for i := o.n - 1; i > 0; i-- {
		j := draws.below(uint64(i) + 1)
		o.places[i], o.places[j] = o.places[j], o.places[i]
	}
	o.epoch = epoch
}

// generator is a counter-based random number generator: draw number c is splitmix.At(key, c).
type generator struct {
	key   uint64
	drawn uint64 // number of draws so far
}

// next returns the next draw.
func (g *generator) next() uint64 {
	x := splitmix.At(g.key, g.drawn)
	g.drawn++
	return x
}

// below returns a uniform draw from 0..n-1. It may take several draws.
func (g *generator) below(n uint64) uint64 {
	reject := -n % n // 2^64 mod n
	for {
		hi, lo := bits.Mul64(g.next(), n)
		if lo >= reject {
			return hi
		}
	}
}
