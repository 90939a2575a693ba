package queue

// A heap is a binary min-heap; container/heap would box every item.
type heap[T interface{ sooner(T) bool }] []T

func (h *heap[T]) push(item T) {
	*h = append(*h, item)
	h.up(len(*h) - 1)
}

func (h *heap[T]) pop() T { return h.remove(0) }

// remove takes out the item at place i.
func (h *heap[T]) remove(i int) T {
	s := *h
	item, last := s[i], len(s)-1
	s[i] = s[last]
	var none T
	s[last] = none
	s = s[:last]
	*h = s
	switch {
	case last == 0 && cap(s) > minShrunk:
		*h = nil // a backlog leaves no memory behind
	case i < last:
		h.down(i)
		h.up(i)
	}
	return item
}

// takeOut takes out the items that are wanted, in no order.
func (h *heap[T]) takeOut(wanted func(T) bool) (taken []T) {
	kept := (*h)[:0]
	for _, item := range *h {
		if wanted(item) {
			taken = append(taken, item)
		} else {
			kept = append(kept, item)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	clear((*h)[len(kept):])
	if *h = kept; len(kept) == 0 && cap(kept) > minShrunk {
		*h = nil
	}
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return taken
}

func (h heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].sooner(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (h heap[T]) down(i int) {
	for {
		least, left, right := i, 2*i+1, 2*i+2
		if left < len(h) && h[left].sooner(h[least]) {
			least = left
		}
		if right < len(h) && h[right].sooner(h[least]) {
			least = right
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
