// Package heap is a binary min-heap that reports each item's place to the item, so that items can
// be moved and removed.
package heap

import "slices"

// An Item is an element of a heap. The heap calls Moved with the item's new place, or [Nowhere]
// after its removal. Moved may do nothing if Fix and Remove are never called for the item.
type Item[T any] interface {
	Before(other T) bool
	Moved(place int)
}

// Nowhere is the place of an item that is in no heap.
const Nowhere = -1

// A Heap has its first item at index 0. A nil Heap is empty. A large heap grows by a quarter at a
// time, and frees memory after most of its items were removed.
type Heap[T Item[T]] []T

// minQuarter is the minimum length of a heap that grows by a quarter; append doubles shorter heaps.
const minQuarter = 16

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	if n := len(*h); n == cap(*h) && n >= minQuarter { // append would double it
		grown := make(Heap[T], n, n+n/4+1)
		copy(grown, *h)
		*h = grown
	}
	*h = append(*h, item)
	last := len(*h) - 1
	item.Moved(last)
	h.up(last)
}

// Pop removes and returns the first item.
func (h *Heap[T]) Pop() T { return h.Remove(0) }

// Remove removes and returns the item at place.
func (h *Heap[T]) Remove(place int) T {
	item, last := (*h)[place], len(*h)-1
	h.swap(place, last)
	h.cut(last)
	if place < last {
		h.Fix(place)
	}
	item.Moved(Nowhere)
	return item
}

// Fix restores the order after the item at place has changed.
func (h Heap[T]) Fix(place int) {
	h.down(place)
	h.up(place)
}

// TakeOut removes the items that satisfy wanted, and returns them in no order.
func (h *Heap[T]) TakeOut(wanted func(T) bool) (taken []T) {
	kept := (*h)[:0]
	for _, item := range *h {
		if wanted(item) {
			taken = append(taken, item)
			item.Moved(Nowhere)
		} else {
			item.Moved(len(kept))
			kept = append(kept, item)
		}
	}
	if len(taken) > 0 {
		h.cut(len(kept))
		for place := len(*h)/2 - 1; place >= 0; place-- {
			h.down(place)
		}
	}
	return taken
}

// minShrunk is the capacity above which a heap frees memory.
const minShrunk = 1024

// cut truncates the heap to n items.
func (h *Heap[T]) cut(n int) {
	clear((*h)[n:])
	if *h = (*h)[:n]; cap(*h) > minShrunk && n < cap(*h)/8 {
		*h = slices.Clone(*h)
	}
}

func (h Heap[T]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Moved(i)
	h[j].Moved(j)
}

func (h Heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].Before(h[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h Heap[T]) down(i int) {
	for {
		least, left, right := i, 2*i+1, 2*i+2
		if left < len(h) && h[left].Before(h[least]) {
			least = left
		}
		if right < len(h) && h[right].Before(h[least]) {
			least = right
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
