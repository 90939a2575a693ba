package queue

// A heap is a binary min-heap; container/heap would box every item.
type heap[T interface{ before(T) bool }] []T

func (h *heap[T]) push(item T) {
	*h = append(*h, item)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *heap[T]) pop() T {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	var none T
	s[last] = none
	s = s[:last]
	for i := 0; ; {
		least, left, right := i, 2*i+1, 2*i+2
		if left < last && s[left].before(s[least]) {
			least = left
		}
		if right < last && s[right].before(s[least]) {
			least = right
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	if *h = s; last == 0 && cap(s) > 1024 {
		*h = nil // a backlog leaves no memory behind
	}
	return top
}
