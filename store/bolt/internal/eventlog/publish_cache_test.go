package eventlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// cacheOf returns arguments for put: an event with the given number of deliveries and body size.
func cacheOf(first uint64, deliveries, body int, at time.Time) (*driver.EncodedEvent, uint64, []string, time.Time) {
	return &driver.EncodedEvent{ID: fmt.Sprint("evt_", first), Body: make([]byte, body)}, first, slices.Repeat([]string{"wh"}, deliveries), at
}

// cached returns a reference to the delivery with the given number.
func cached(number uint64) driver.DeliveryRef {
	return driver.DeliveryRef{WebhookID: "wh", Number: number}
}

// TestPublishCache puts random events and takes them in random order. The cache must return the
// right events, each delivery once, and stay within its limits.
func TestPublishCache(t *testing.T) {
	const events, most = 3000, 5
	var r publishCache
	left := make(map[uint64]string)
	var numbers []uint64
	next := uint64(1)
	now := time.Unix(1_700_000_000, 0)
	found := 0
	for range events {
		n := 1 + rand.N(most)
		put, first, to, _ := cacheOf(next+1, n, rand.N(64<<10), now)
		r.put(put, first, to, now)
		for i := range uint64(n) {
			left[next+1+i] = put.ID
			numbers = append(numbers, next+1+i)
		}
		if next += uint64(n) + 1; r.bytes > maxPublished {
			t.Fatalf("%d bytes are held", r.bytes)
		}
		if _, _, held := r.take(cached(first - 1)); held {
			t.Fatal("the event's own number is held")
		}
		now = now.Add(rand.N(20 * time.Millisecond))
		for range rand.N(2 * n) {
			i := rand.N(len(numbers))
			number := numbers[i]
			event, _, held := r.take(cached(number))
			if _, _, again := r.take(cached(number)); again {
				t.Fatalf("%d is held after it was taken", number)
			}
			if held && event.ID != left[number] {
				t.Fatalf("%d is of %q, want %q", number, event.ID, left[number])
			}
			if held {
				found++
			}
			if numbers[i] = numbers[len(numbers)-1]; len(numbers) > 1 {
				numbers = numbers[:len(numbers)-1]
			}
		}
	}
	if found < events {
		t.Errorf("%d deliveries were held when they were claimed, want more", found)
	}
	for _, number := range numbers {
		r.take(cached(number))
	}
	r.forget(next)
	if r.bytes != 0 || r.count != 0 {
		t.Errorf("%d bytes of %d events are held at the end", r.bytes, r.count)
	}
}

// A full cache keeps its older events, which are claimed before new ones, but only for a limited
// time, since they may never be claimed.
func TestPublishCache_Full_KeepsOlderEvents(t *testing.T) {
	const body = maxPublished/4 - eventBytes
	var r publishCache
	at := time.Unix(1_700_000_000, 0)
	for i := range uint64(6) {
		r.put(cacheOf(10*i, 1, body, at))
	}
	holds := func(want ...uint64) {
		t.Helper()
		var got []uint64
		for i := range r.count {
			got = append(got, r.at(i).first)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v are held, want %v", got, want)
		}
	}
	holds(0, 10, 20, 30)
	r.take(cached(0))
	r.put(cacheOf(60, 1, body, at))
	holds(10, 20, 30, 60)
	r.put(cacheOf(70, 1, body, at.Add(publishedFor)))
	holds(20, 30, 60, 70)
	r.forget(60)
	holds(60, 70)
}

// If one event is never claimed, because its webhook is down, the ring must not grow with the
// events that are published and claimed after it.
func TestPublishCache_BehindUnclaimedEvent_DoesNotGrow(t *testing.T) {
	const most = maxPublished / eventBytes
	var r publishCache
	at := time.Unix(1_700_000_000, 0)
	r.put(cacheOf(1, 1, 0, at))
	for i := range uint64(3 * most) {
		at = at.Add(time.Millisecond)
		r.put(cacheOf(2*i+3, 1, 0, at))
		if _, _, held := r.take(cached(2*i + 3)); !held {
			t.Fatalf("event %d is not held", i)
		}
	}
	if len(r.ring) > most {
		t.Errorf("the ring has %d places, want %d at most", len(r.ring), most)
	}
}
