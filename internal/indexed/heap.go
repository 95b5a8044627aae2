// Package indexed is a heap whose items know their places, so that one in the
// middle can be moved or taken out.
package indexed

import "slices"

// Out is the place of an item that is in no heap.
const Out = -1

// Heap keeps the item on top that is less than all others. New makes one. It is
// not safe for concurrent use.
type Heap[T any] struct {
	less  func(a, b T) bool
	place func(item T, at int)
	items []T
}

// New returns an empty heap. place, where not nil, is called with each item's
// place whenever it has a new one, and with Out when the item has left.
func New[T any](less func(a, b T) bool, place func(item T, at int)) Heap[T] {
	if place == nil {
		place = func(T, int) {}
	}
	return Heap[T]{less: less, place: place}
}

// Len is the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// At is the item at a place; that at 0 is on top, and those at 2i+1 and 2i+2
// are not less than that at i.
func (h *Heap[T]) At(at int) T { return h.items[at] }

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	h.items = append(h.items, item)
	h.up(len(h.items) - 1)
}

// Pop takes the top off.
func (h *Heap[T]) Pop() T { return h.Remove(0) }

// Fix moves the item at a place to where it belongs since it has changed.
func (h *Heap[T]) Fix(at int) { h.down(h.up(at)) }

// Remove takes the item at a place out.
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

// DeleteFunc takes out all items for which del is true. It calls del once for
// each.
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

// up moves the item at a place above those that it is less than and returns its
// new place.
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

// down moves the item at a place below those that are less than it.
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
