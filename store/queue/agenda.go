package queue

import (
	stdheap "container/heap"
	"slices"
)

// An agenda is a min-heap of lanes by when their first item is due. Each lane
// knows its place in it.
type agenda []*lane

func (l *lane) sooner(other *lane) bool {
	due, others := l.due(), other.due()
	return due < others || due == others && l.waiting[0].seq < other.waiting[0].seq
}

func (a *agenda) add(l *lane)   { stdheap.Push(a, l) }
func (a *agenda) moved(l *lane) { stdheap.Fix(a, l.place) }

func (a *agenda) remove(l *lane) {
	if l.place >= 0 {
		stdheap.Remove(a, l.place)
	}
}

// The methods of [stdheap.Interface].

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].sooner(a[j]) }

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

func (a *agenda) Push(x any) {
	l := x.(*lane)
	l.place = len(*a)
	*a = append(*a, l)
}

func (a *agenda) Pop() any {
	s := *a
	l := s[len(s)-1]
	s[len(s)-1] = nil
	if *a = s[:len(s)-1]; cap(*a) > minShrunk && len(*a) < cap(*a)/8 {
		*a = slices.Clone(*a) // a crowd leaves no memory behind
	}
	l.place = nowhere
	return l
}
