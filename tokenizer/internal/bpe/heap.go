package bpe

import "math"

// heapWord is a word as a linked list over positions, with a heap of its pairs.
// It may be reused.
type heapWord struct {
	ids   []int32
	nodes []node
	heap  []uint64 // rank and position

	copied []int32 // scratch space of holds
}

type node struct {
	prev, next int32 // positions; -1 and len(ids) at the ends
	rank       int32 // of the pair that starts here; noRank if none
	into       int32 // result of that pair
}

// merge implements Table.Merge in O(n log n). The nodes of the result stay
// linked.
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
		if w.nodes[at].rank != rank { // the pair no longer exists
			w.drop()
			continue
		}
		w.join(p, at)
	}
	k := 0
	for i := int32(0); int(i) < n; i = w.nodes[i].next {
		ids[k] = ids[i]
		k++
	}
	return k
}

// join merges the pair at a position, which is first in the heap.
func (w *heapWord) join(p *pairTable, at int32) {
	x := &w.nodes[at]
	w.ids[at] = x.into
	gone := &w.nodes[x.next]
	x.next, gone.rank = gone.next, noRank
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

func heapKey(rank, at int32) uint64 { return uint64(rank)<<32 | uint64(at) }

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

// down moves key to its place at i or below.
func (w *heapWord) down(i int, key uint64) {
	h := w.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if key <= h[c] {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = key
}
