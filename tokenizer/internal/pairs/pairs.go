// Package pairs merges pairs of token ids in the order of their ranks.
package pairs

import "math"

// maxShortWord is the number of symbols up to which looking through all pairs
// for the best one is faster than a heap.
const maxShortWord = 32

const noRank = math.MaxInt32

// Table maps a pair of ids to its merge: open addressing, at most half full.
type Table struct {
	mask  uint64
	slots []pairSlot
}

type pairSlot struct {
	key          uint64 // pair + 1; 0 is free
	rank, merged int32
}

// New makes a table with room for n pairs.
func New(n int) *Table {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return &Table{uint64(size - 1), make([]pairSlot, size)}
}

func (p *Table) find(a, b int32) *pairSlot {
	key := (uint64(uint32(a))<<32 | uint64(uint32(b))) + 1
	h := key * 0x9e3779b97f4a7c15
	for i := h >> 20 & p.mask; ; i = (i + 1) & p.mask {
		if s := &p.slots[i]; s.key == key || s.key == 0 {
			return s
		}
	}
}

// Put sets the merge of a pair; a pair that is listed twice has its last rank.
func (p *Table) Put(a, b, rank, merged int32) {
	*p.find(a, b) = pairSlot{(uint64(uint32(a))<<32 | uint64(uint32(b))) + 1, rank, merged}
}

// get returns the merge of a pair, its rank noRank where there is none.
func (p *Table) get(a, b int32) (rank, merged int32) {
	if s := p.find(a, b); s.key != 0 {
		return s.rank, s.merged
	}
	return noRank, 0
}

// Merge applies, as long as there is one, the leftmost of the pairs of lowest
// rank, in place, and returns how many ids are left.
func (p *Table) Merge(ids []int32) int {
	if len(ids) <= maxShortWord {
		return p.mergeShort(ids)
	}
	return p.mergeLong(ids)
}

// mergeShort merges in place and returns how many ids are left; quadratic in
// their number, which is at most maxShortWord.
func (p *Table) mergeShort(ids []int32) int {
	var ranks, into [maxShortWord]int32 // of the pair that starts here
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
		if at+2 < n { // what is right of the pair moves left
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

// longWord is a word as a linked list over positions, with a heap of its pairs.
type longWord struct {
	ids        []int32
	prev, next []int32 // positions; -1 and len(ids) at the ends
	ranks      []int32 // of the pair that starts at a position; noRank where none does
	into       []int32 // what that pair makes
	heap       []uint64
}

// mergeLong merges in place and returns how many ids are left, in O(n log n).
func (p *Table) mergeLong(ids []int32) int {
	n := len(ids)
	w := longWord{
		ids: ids, prev: make([]int32, n), next: make([]int32, n),
		ranks: make([]int32, n), into: make([]int32, n), heap: make([]uint64, 0, n),
	}
	for i := range n {
		w.prev[i], w.next[i], w.ranks[i] = int32(i-1), int32(i+1), noRank
		if i+1 < n {
			w.ranks[i], w.into[i] = p.get(ids[i], ids[i+1])
		}
		if w.ranks[i] != noRank {
			w.heap = append(w.heap, heapKey(w.ranks[i], int32(i)))
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i)
	}
	for len(w.heap) > 0 {
		key := w.pop()
		rank, at := int32(key>>32), int32(key&math.MaxUint32)
		if w.ranks[at] != rank { // the pair is gone
			continue
		}
		gone := w.next[at]
		after := w.next[gone]
		w.ids[at], w.next[at], w.ranks[gone] = w.into[at], after, noRank
		if int(after) < n {
			w.prev[after] = at
		}
		w.pair(p, at)
		if before := w.prev[at]; before >= 0 {
			w.pair(p, before)
		}
	}
	k := 0
	for i := int32(0); int(i) < n; i = w.next[i] {
		ids[k] = ids[i]
		k++
	}
	return k
}

func heapKey(rank, at int32) uint64 { return uint64(rank)<<32 | uint64(at) }

// pair looks the pair at a position up again.
func (w *longWord) pair(p *Table, at int32) {
	w.ranks[at] = noRank
	if next := w.next[at]; int(next) < len(w.ids) {
		if w.ranks[at], w.into[at] = p.get(w.ids[at], w.ids[next]); w.ranks[at] != noRank {
			w.push(heapKey(w.ranks[at], at))
		}
	}
}

func (w *longWord) push(key uint64) {
	w.heap = append(w.heap, key)
	for i := len(w.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if w.heap[up] <= w.heap[i] {
			break
		}
		w.heap[up], w.heap[i] = w.heap[i], w.heap[up]
		i = up
	}
}

func (w *longWord) pop() uint64 {
	key := w.heap[0]
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	w.down(0)
	return key
}

func (w *longWord) down(i int) {
	h := w.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
