package auth

import (
	"strconv"
	"testing"
	"time"
)

// What is kept is bounded, however many keys are in use; those that are not need not
// be kept, and making room for others takes nothing from them.
func TestLimiterIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter(RateLimit{PerSecond: 1, Burst: 2}, func() time.Time { return now })
	const most = limiterShards * shardKeys
	kept := func() (n int) {
		for i := range l.shards {
			if len(l.shards[i].tats) > shardKeys {
				t.Errorf("a shard keeps %d keys", len(l.shards[i].tats))
			}
			n += len(l.shards[i].tats)
		}
		return n
	}
	for i := range most + most/4 {
		if q := l.take(strconv.Itoa(i)); !q.admitted || q.remaining != 1 {
			t.Fatalf("key %d has %+v", i, q)
		}
	}
	if n := kept(); n > most || n < most/2 {
		t.Errorf("%d keys are kept, want at most %d", n, most)
	}
	now = now.Add(time.Minute) // all bursts are full
	for range 2 {
		l.take("busy")
	}
	for i := range most / 4 {
		l.take("more " + strconv.Itoa(i))
	}
	if n := kept(); n > most {
		t.Errorf("%d keys are kept, want at most %d", n, most)
	}
	if q := l.take("busy"); q.admitted {
		t.Errorf("making room gave a busy key %+v", q)
	}
}
