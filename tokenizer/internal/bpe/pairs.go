package bpe

import "math"

// noRank is the rank of a pair without a merge, above all others.
const noRank = math.MaxInt32

// pairTable maps a pair of ids to its merge. It is a hash table with linear probing, at most
// half full. Most pairs looked up have no merge, which a Bloom filter with one bit per pair
// finds out without touching the larger slots.
type pairTable struct {
	shift  uint // right shift that turns a hash into a slot's index
	slots  []pairSlot
	filter []uint64 // bits by the lower part of the hash, which does not select the slot
}

type pairSlot struct {
	key    uint64 // result of pairKey; 0 for a free slot
	rank   int32
	merged int32 // id that the pair merges into
}

// filterBits is the number of filter bits per slot.
const filterBits = 8

// newPairTable returns a table with room for n pairs.
func newPairTable(n int) *pairTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	return &pairTable{shift: 64 - bits, slots: make([]pairSlot, 1<<bits), filter: make([]uint64, filterBits<<bits/64)}
}

// pairKey returns a number for a pair, not 0. Ids are not negative.
func pairKey(a, b int32) uint64 { return (uint64(uint32(a))<<32 | uint64(uint32(b))) + 1 }

// hash spreads both ids over all bits, with constants of SplitMix64.
func hash(key uint64) uint64 {
	h := key * 0x9e3779b97f4a7c15
	return (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9
}

// find returns the slot of a key, or the free slot where it belongs. h is its hash.
func (p *pairTable) find(key, h uint64) *pairSlot {
	for i := h >> p.shift; ; i = (i + 1) & uint64(len(p.slots)-1) {
		if s := &p.slots[i]; s.key == key || s.key == 0 {
			return s
		}
	}
}

// filterAt returns the index of a hash's word in the filter, and the mask of its bit.
func (p *pairTable) filterAt(h uint64) (word, bit uint64) {
	h &= uint64(len(p.filter)*64 - 1)
	return h >> 6, 1 << (h & 63)
}

// put sets the merge of a pair. The last rank of a pair wins.
func (p *pairTable) put(a, b, rank, merged int32) {
	key := pairKey(a, b)
	h := hash(key)
	*p.find(key, h) = pairSlot{key, rank, merged}
	word, bit := p.filterAt(h)
	p.filter[word] |= bit
}

// get returns the merge of a pair. rank is noRank if there is none.
func (p *pairTable) get(a, b int32) (rank, merged int32) {
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

// merge repeatedly applies the leftmost pair of lowest rank, in place, until none
// is left. It returns the number of remaining ids.
func (p *pairTable) merge(ids []int32) int {
	switch {
	case len(ids) <= maxShort:
		return p.mergeShort(ids)
	case len(ids) <= window:
		var w heapWord
		return w.merge(p, ids)
	}
	return p.mergeParts(ids)
}

// maxShort is the number of symbols up to which searching all pairs for the best
// one is faster than a heap.
const maxShort = 32

// mergeShort is merge for at most maxShort symbols, in quadratic time.
func (p *pairTable) mergeShort(ids []int32) int {
	var ranks, into [maxShort]int32 // rank and result of the pair that starts at each symbol
	n := len(ids)
	for i := range n - 1 {
		ranks[i], into[i] = p.get(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := int32(noRank), 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		ids[at] = into[at]
		if at+2 < n { // move the symbols right of the pair
			copy(ids[at+1:], ids[at+2:n])
			copy(ranks[at+1:], ranks[at+2:n-1])
			copy(into[at+1:], into[at+2:n-1])
		}
		n--
		if at > 0 {
			ranks[at-1], into[at-1] = p.get(ids[at-1], ids[at])
		}
		if at < n-1 {
			ranks[at], into[at] = p.get(ids[at], ids[at+1])
		}
	}
	return n
}
