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

func TestHeap_RandomChanges_TracksIndexesAndPopsInOrder(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var h heap.Heap[*item]
		var want []*item
		check := func() {
			t.Helper()
			for place, it := range h {
				if it.place != place {
					t.Fatalf("seed %d: item at %d has place %d", seed, place, it.place)
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
				t.Fatalf("seed %d: removed item has place %d, want Nowhere", seed, it.place)
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
			t.Fatalf("seed %d: TakeOut of every %dth item = %v", seed, wanted, taken)
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
			t.Fatalf("%d items left, want 0", len(h))
		}
	}
}

func TestHeap_Shrinks_FreesMemory(t *testing.T) {
	var h heap.Heap[*item]
	for i := range 5000 {
		h.Push(&item{seq: i})
	}
	for n := 5000; n > 0; n-- {
		if cap(h) > 1024 && cap(h) > 8*(n+1) {
			t.Fatalf("capacity = %d with %d items, want at most 1024 or eight times as much", cap(h), n)
		}
		h.Pop()
	}
	if cap(h) > 1024 {
		t.Errorf("capacity of the empty heap = %d, want at most 1024", cap(h))
	}
}

// A heap may hold millions of items, so doubling it would waste memory.
func TestHeap_Full_GrowsByAQuarter(t *testing.T) {
	var h heap.Heap[*item]
	for seq := range 10_000 {
		h.Push(&item{seq: seq})
		if most := max(16, len(h)+len(h)/4+1); cap(h) > most {
			t.Fatalf("capacity of %d items = %d, want at most %d", len(h), cap(h), most)
		}
	}
}
