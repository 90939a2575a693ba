package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHeap removes items from anywhere in a heap and checks that what is left
// comes out in order.
func TestHeap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var h heap[item]
		var want []item
		for i := range 100 {
			it := item{seq: uint64(i), due: rnd.Int64N(30)}
			h.push(it)
			want = append(want, it)
		}
		for range 20 {
			it := h.remove(rnd.IntN(len(h)))
			want = slices.DeleteFunc(want, func(other item) bool { return other == it })
		}
		wanted := rnd.Uint64N(5) + 2
		taken := h.takeOut(func(it item) bool { return it.seq%wanted == 0 })
		want = slices.DeleteFunc(want, func(it item) bool { return slices.Contains(taken, it) })
		if len(want) != len(h) || slices.ContainsFunc(want, func(it item) bool { return it.seq%wanted == 0 }) {
			t.Fatalf("seed %d: took out %v", seed, taken)
		}
		slices.SortFunc(want, func(a, b item) int {
			if a.sooner(b) {
				return -1
			}
			return 1
		})
		for i, it := range want {
			if got := h.pop(); got != it {
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
	var h heap[item]
	for i := range 5000 {
		h.push(item{seq: uint64(i)})
	}
	for range 5000 {
		h.pop()
	}
	if cap(h) != 0 {
		t.Errorf("capacity = %d after the last item, want 0", cap(h))
	}
}
