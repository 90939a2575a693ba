package heap_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/storageapi/storageapi/internal/heap"
)

type item struct {
	due   int64
	seq   int
	place int
}

func (a *item) Before(b *item) bool { return a.due < b.due || a.due == b.due && a.seq < b.seq }
func (a *item) Moved(place int)     { a.place = place }

// TestHeap moves and removes items from anywhere in a heap and checks that every item
// knows its place, and that what is left comes out in order.
func TestHeap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var h heap.Heap[*item]
		var want []*item
		check := func() {
			t.Helper()
			for place, it := range h {
				if it.place != place {
					t.Fatalf("seed %d: the item at %d has the place %d", seed, place, it.place)
				}
			}
		}
		for i := range 100 {
			it := &item{seq: i, due: rnd.Int64N(30)}
			h.Push(it)
			want = append(want, it)
		}
		for range 20 {
			it := h.Remove(want[rnd.IntN(len(want))].place)
			want = slices.DeleteFunc(want, func(other *item) bool { return other == it })
			if it.place != heap.Nowhere {
				t.Fatalf("seed %d: what was removed has the place %d", seed, it.place)
			}
			moved := want[rnd.IntN(len(want))]
			moved.due = rnd.Int64N(30)
			h.Fix(moved.place)
			check()
		}
		wanted := rnd.IntN(5) + 2
		taken := h.TakeOut(func(it *item) bool { return it.seq%wanted == 0 })
		want = slices.DeleteFunc(want, func(it *item) bool { return slices.Contains(taken, it) })
		if len(want) != len(h) || slices.ContainsFunc(want, func(it *item) bool { return it.seq%wanted == 0 }) {
			t.Fatalf("seed %d: took out %v", seed, taken)
		}
		check()
		slices.SortFunc(want, func(a, b *item) int {
			if a.Before(b) {
				return -1
			}
			return 1
		})
		for i, it := range want {
			if got := h.Pop(); got != it {
				t.Fatalf("seed %d: item %d = %+v, want %+v", seed, i, got, it)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d items left", len(h))
		}
	}
}

// TestHeapLeavesNothing checks that a backlog leaves no memory behind.
func TestHeapLeavesNothing(t *testing.T) {
	var h heap.Heap[*item]
	for i := range 5000 {
		h.Push(&item{seq: i})
	}
	for n := 5000; n > 0; n-- {
		if cap(h) > 1024 && cap(h) > 8*(n+1) {
			t.Fatalf("capacity = %d with %d items", cap(h), n)
		}
		h.Pop()
	}
	if cap(h) > 1024 {
		t.Errorf("capacity = %d after the last item", cap(h))
	}
}

// A heap that grows has little room to spare: there are millions of items.
func TestHeap_Grows_WithAQuarterToSpare(t *testing.T) {
	var h heap.Heap[*item]
	for seq := range 10_000 {
		h.Push(&item{seq: seq})
		if most := max(16, len(h)+len(h)/4+1); cap(h) > most {
			t.Fatalf("capacity of %d items = %d, want at most %d", len(h), cap(h), most)
		}
	}
}
