package bpe

import "math"

// heapWord is a word as a linked list over positions, with a heap of its pairs. A merge keeps
// the position of its left symbol and unlinks that of the right one. Heap keys whose pair
// changed since are stale: they stay in the heap until they come first. A heapWord may be
// reused.
type heapWord struct {
	ids   []int32  // ids by position; that of an unlinked position has no meaning
	nodes []node   // list nodes by position
	heap  []uint64 // min-heap of heapKeys

	copied []int32 // scratch space of mergesAt
}

// node is the place of a symbol in the list.
type node struct {
	prev, next int32 // positions of the neighbours; -1 and len(ids) at the ends
	rank       int32 // rank of the pair that starts here; noRank if no merge applies
	into       int32 // id that the pair merges into
}

// merge does the work of pairTable.merge in O(n log n). The nodes of the result stay
// linked, for mergeParts.
func (w *heapWord) merge(p *pairTable, ids []int32) int {
	n := len(ids)
	if cap(w.nodes) < n {
		w.nodes = make([]node, n)
	}
	w.ids, w.nodes, w.heap = ids, w.nodes[:n], w.heap[:0]
	for i := range n {
		w.nodes[i] = node{int32(i - 1), int32(i + 1), noRank, 0}
		if i+1 < n {
			rank, into := p.get(ids[i], ids[i+1])
			w.nodes[i].rank, w.nodes[i].into = rank, into
			if rank != noRank {
				w.heap = append(w.heap, heapKey(rank, int32(i)))
			}
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i, w.heap[i])
	}
	for len(w.heap) > 0 {
		key := w.heap[0]
		rank, at := int32(key>>32), int32(key&math.MaxUint32)
		if w.nodes[at].rank != rank { // a stale key
			w.drop()
			continue
		}
		w.join(p, at)
	}
	count := 0
	for i := int32(0); int(i) < n; i = w.nodes[i].next {
		ids[count] = ids[i]
		count++
	}
	return count
}

// join merges the pair at a position, whose key is first in the heap. The key of the pair
// that then starts there replaces the first key, which costs less than removing one and
// adding another.
func (w *heapWord) join(p *pairTable, at int32) {
	x := &w.nodes[at]
	w.ids[at] = x.into
	unlinked := &w.nodes[x.next]
	x.next = unlinked.next
	unlinked.rank = noRank
	x.rank = noRank
	if after := x.next; int(after) < len(w.nodes) {
		w.nodes[after].prev = at
		x.rank, x.into = p.get(w.ids[at], w.ids[after])
	}
	if x.rank != noRank {
		w.down(0, heapKey(x.rank, at))
	} else {
		w.drop()
	}
	if x.prev >= 0 {
		before := &w.nodes[x.prev]
		if before.rank, before.into = p.get(w.ids[x.prev], w.ids[at]); before.rank != noRank {
			w.push(heapKey(before.rank, x.prev))
		}
	}
}

// heapKey orders pairs by rank, then from left to right. Both arguments are not negative.
func heapKey(rank, at int32) uint64 { return uint64(rank)<<32 | uint64(at) }

// push adds a key.
func (w *heapWord) push(key uint64) {
	w.heap = append(w.heap, key)
	i := len(w.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if w.heap[up] <= key {
			break
		}
		w.heap[i] = w.heap[up]
		i = up
	}
	w.heap[i] = key
}

// drop removes the first key.
func (w *heapWord) drop() {
	last := len(w.heap) - 1
	key := w.heap[last]
	w.heap = w.heap[:last]
	if last > 0 {
		w.down(0, key)
	}
}

// down stores key at i or below, where it keeps the heap's order. It overwrites the key at i.
func (w *heapWord) down(i int, key uint64) {
	h := w.heap
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if key <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = key
}
