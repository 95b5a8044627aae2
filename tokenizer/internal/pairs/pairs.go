// Package pairs merges pairs of token ids in the order of their ranks.
package pairs

import "math"

const noRank = math.MaxInt32

// Table maps a pair of ids to its merge. It uses open addressing and is at most
// half full.
type Table struct {
	shift  uint
	slots  []pairSlot
	filter []uint64 // a bit per pair, by another part of its hash; most pairs looked up have no merge
}

type pairSlot struct {
	key          uint64 // pair + 1; 0 is free
	rank, merged int32
}

// filterBits is the number of filter bits per slot.
const filterBits = 8

// New returns a table with room for n pairs.
func New(n int) *Table {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	return &Table{shift: 64 - bits, slots: make([]pairSlot, 1<<bits), filter: make([]uint64, filterBits<<bits/64)}
}

func pairKey(a, b int32) uint64 { return (uint64(uint32(a))<<32 | uint64(uint32(b))) + 1 }

// hash spreads both ids over the upper bits.
func hash(key uint64) uint64 {
	h := key * 0x9e3779b97f4a7c15
	return (h ^ h>>29) * 0xbf58476d1ce4e5b9
}

func (p *Table) find(key, h uint64) *pairSlot {
	for i := h >> p.shift; ; i = (i + 1) & uint64(len(p.slots)-1) {
		if s := &p.slots[i]; s.key == key || s.key == 0 {
			return s
		}
	}
}

// filterAt returns the word and the bit of a hash in the filter.
func (p *Table) filterAt(h uint64) (word, bit uint64) {
	h &= uint64(len(p.filter)*64 - 1)
	return h >> 6, 1 << (h & 63)
}

// Put sets the merge of a pair. The last rank of a pair wins.
func (p *Table) Put(a, b, rank, merged int32) {
	key := pairKey(a, b)
	h := hash(key)
	*p.find(key, h) = pairSlot{key, rank, merged}
	word, bit := p.filterAt(h)
	p.filter[word] |= bit
}

// get returns the merge of a pair. rank is noRank if there is none.
func (p *Table) get(a, b int32) (rank, merged int32) {
	key := pairKey(a, b)
	h := hash(key)
	if word, bit := p.filterAt(h); p.filter[word]&bit == 0 {
		return noRank, 0
	}
	if s := p.find(key, h); s.key != 0 {
		return s.rank, s.merged
	}
	return noRank, 0
}

// Merge repeatedly applies the leftmost pair of lowest rank, in place, until none
// is left. It returns the number of remaining ids.
func (p *Table) Merge(ids []int32) int {
	switch {
	case len(ids) <= maxShort:
		return p.mergeShort(ids)
	case len(ids) <= window:
		var w heapWord
		return w.merge(p, ids)
	}
	return p.mergeParts(ids)
}
