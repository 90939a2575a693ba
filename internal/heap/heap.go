// Package heap is a binary min-heap whose items can be found and moved again.
package heap

import "slices"

// An Item goes before others, and is told of its place in the heap: [Nowhere] once it is
// in none. It may ignore that, if it is never to be moved.
type Item[T any] interface {
	Before(other T) bool
	Moved(place int)
}

// Nowhere is the place of an item that was taken out.
const Nowhere = -1

// A Heap has its first item at 0; nil is empty. A large one grows by a quarter at a time, and gives
// memory back once most of its items are gone.
type Heap[T Item[T]] []T

// minQuarter is from how many items on a heap grows by a quarter.
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

// Pop takes out the first item.
func (h *Heap[T]) Pop() T { return h.Remove(0) }

// Remove takes out the item at that place.
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

// Fix finds the place of an item whose order has changed.
func (h Heap[T]) Fix(place int) {
	h.down(place)
	h.up(place)
}

// TakeOut takes out the items that are wanted, in no order.
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

// minShrunk is from how much capacity on giving memory back is worth it.
const minShrunk = 1024

// cut keeps the first n items.
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
