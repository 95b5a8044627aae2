package data

import (
	"math/bits"

	"github.com/easyrl/easyrl/internal/splitmix"
)

// Order is the endless order in which a run takes its prompts: epoch after
// epoch, each a permutation of all prompts. It is a function of the number of
// prompts and the seed alone, so that a run resumes from an integer. It is not
// safe for concurrent use.
//
// The permutation of an epoch is a Fisher-Yates shuffle from the last place
// down: place i swaps with a place drawn from 0..i. Draw number c (from 0) of
// epoch e is output c of SplitMix64 with the seed mix(mix(seed) + e), where mix is
// that generator's finalizer (package splitmix). It becomes a number below n as the
// upper word of its 128-bit product with n; a draw whose lower word is below 2^64
// mod n is passed over (Lemire 2019).
type Order struct {
	n       int
	seed    uint64
	shuffle bool
	epoch   int      // that permuted belongs to, or -1
	places  []int32  // its permutation
	mixture *mixture // of several parts by weights; nil for one
}

// NewOrder is the order of n prompts, at least one; without shuffle every epoch
// goes through them as they are.
func NewOrder(n int, seed uint64, shuffle bool) *Order {
	if n < 1 || n > 1<<31-1 {
		panic("data: order of no prompts, or of more than 2^31-1")
	}
	return &Order{n: n, seed: seed, shuffle: shuffle, epoch: -1}
}

// At is the index of the prompt at position i, from 0. Positions of one epoch
// cost a shuffle of it once.
func (o *Order) At(i int) int {
	if i < 0 {
		panic("data: order at a negative position")
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

// generator is a counter-based source of random numbers.
type generator struct{ key, drawn uint64 }

func (g *generator) next() uint64 {
	x := splitmix.At(g.key, g.drawn)
	g.drawn++
	return x
}

// below draws from 0..n-1, each equally likely.
func (g *generator) below(n uint64) uint64 {
	for reject := -n % n; ; {
		if hi, lo := bits.Mul64(g.next(), n); lo >= reject {
			return hi
		}
	}
}
