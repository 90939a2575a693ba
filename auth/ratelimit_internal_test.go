package auth

import (
	"strconv"
	"testing"
	"time"
)

// The number of entries is limited. Entries of idle keys are dropped first, and making room for a
// new key must not reset the count of a busy one.
func TestLimiter_ManyKeys_BoundsEntries(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter(RateLimit{PerSecond: 1, Burst: 2}, func() time.Time { return now })
	const most = limiterShards * shardKeys
	kept := func() (n int) {
		for i := range l.shards {
			if len(l.shards[i].tats) > shardKeys {
				t.Errorf("shard has %d keys, want at most %d", len(l.shards[i].tats), shardKeys)
			}
			n += len(l.shards[i].tats)
		}
		return n
	}
	for i := range most + most/4 {
		if q := l.take(strconv.Itoa(i), l.rate); !q.admitted || q.remaining != 1 {
			t.Fatalf("key %d: quota = %+v", i, q)
		}
	}
	if n := kept(); n > most || n < most/2 {
		t.Errorf("%d entries, want %d to %d", n, most/2, most)
	}
	now = now.Add(time.Minute) // by now all bursts are full
	for range 2 {
		l.take("busy", l.rate)
	}
	for i := range most / 4 {
		l.take("more "+strconv.Itoa(i), l.rate)
	}
	if n := kept(); n > most {
		t.Errorf("%d entries, want at most %d", n, most)
	}
	if q := l.take("busy", l.rate); q.admitted {
		t.Errorf("quota of the busy key after making room = %+v, want a rejection", q)
	}
}
