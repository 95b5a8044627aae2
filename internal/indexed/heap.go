// Package indexed provides a heap that tracks the positions of its items, so that
// any item can be moved or removed.
package indexed

import "slices"

// Out is the position of an item that is in no heap.
const Out = -1

// Heap is a binary heap with the smallest item on top. Create it with New. It is
// not safe for concurrent use.
type Heap[T any] struct {
	less  func(a, b T) bool
	place func(item T, at int) // stores the new position of an item; never nil
	items []T
}

// New returns an empty heap. If place is not nil, the heap calls it with each item's
// new position whenever that changes, and with Out when the item is removed. place
// must not use the heap.
func New[T any](less func(a, b T) bool, place func(item T, at int)) Heap[T] {
	if place == nil {
		place = func(T, int) {}
	}
	return Heap[T]{less: less, place: place}
}

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// At returns the item at a position: 0 is the top, and the children of i are at
// 2i+1 and 2i+2.
func (h *Heap[T]) At(at int) T { return h.items[at] }

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	h.items = append(h.items, item)
	h.up(len(h.items) - 1)
}

// Pop removes and returns the top item. It panics if the heap is empty.
func (h *Heap[T]) Pop() T { return h.Remove(0) }

// Fix restores the heap order after the item at a position has changed.
func (h *Heap[T]) Fix(at int) { h.down(h.up(at)) }

// Remove removes and returns the item at a position.
func (h *Heap[T]) Remove(at int) T {
	last := len(h.items) - 1
	item, moved := h.items[at], h.items[last]
	h.items = slices.Delete(h.items, last, last+1)
	if at < last {
		h.items[at] = moved
		h.Fix(at)
	}
	h.place(item, Out)
	return item
}

// DeleteFunc removes all items for which del returns true. It calls del once per
// item.
func (h *Heap[T]) DeleteFunc(del func(item T) bool) {
	h.items = slices.DeleteFunc(h.items, func(item T) bool {
		out := del(item)
		if out {
			h.place(item, Out)
		}
		return out
	})
	for at := len(h.items) - 1; at >= 0; at-- {
		h.down(at)
	}
}

// up moves an item up until its parent is not larger, and returns its new position.
func (h *Heap[T]) up(at int) int {
	item := h.items[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !h.less(item, h.items[parent]) {
			break
		}
		h.put(h.items[parent], at)
		at = parent
	}
	h.put(item, at)
	return at
}

// down moves an item down until no child is smaller.
func (h *Heap[T]) down(at int) {
	item := h.items[at]
	for {
		child := 2*at + 1
		if child+1 < len(h.items) && h.less(h.items[child+1], h.items[child]) {
			child++
		}
		if child >= len(h.items) || !h.less(h.items[child], item) {
			break
		}
		h.put(h.items[child], at)
		at = child
	}
	h.put(item, at)
}

func (h *Heap[T]) put(item T, at int) {
	h.items[at] = item
	h.place(item, at)
}
