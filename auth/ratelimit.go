package auth

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A RateLimit says how many requests each key may make; the zero RateLimit does not
// limit them. Rejected requests do not count.
//
// Each process counts by itself, and up to 262,144 keys at a time: of more that are
// all in use at once, some may make more requests than they should.
type RateLimit struct {
	// PerSecond is how many requests a key may make a second in the long run;
	// 0: any number.
	PerSecond float64

	// Burst is how many a key may make at once after a pause: at most what
	// PerSecond amounts to in a year. Default: PerSecond, rounded up.
	Burst int
}

func (r RateLimit) withDefaults() (RateLimit, error) {
	switch {
	case !(r.PerSecond >= 0) || math.IsInf(r.PerSecond, 0): // NaN, too
		return r, errors.New("RateLimit.PerSecond must be a number that is not negative")
	case r.Burst < 0:
		return r, errors.New("RateLimit.Burst must not be negative")
	case r.PerSecond == 0 && r.Burst > 0:
		return r, errors.New("RateLimit.PerSecond must be given where RateLimit.Burst is")
	}
	if r.Burst == 0 {
		r.Burst = int(min(math.Ceil(r.PerSecond), math.MaxInt32))
	}
	if r.Burst > math.MaxInt32 || float64(r.Burst) > r.PerSecond*(365*24*time.Hour).Seconds() {
		return r, errors.New("RateLimit.Burst must be at most 2147483647, and what RateLimit.PerSecond amounts to in a year")
	}
	return r, nil
}

// The headers X-RateLimit-…, in the form that net/http need not change.
const (
	headerLimit     = "X-Ratelimit-Limit"
	headerRemaining = "X-Ratelimit-Remaining"
	headerReset     = "X-Ratelimit-Reset"
)

const (
	limiterShards = 64
	shardKeys     = 4096
)

// A limiter counts requests by the generic cell rate algorithm: of each key it keeps
// the time at which its burst will be whole again. Every request puts that off by an
// interval, and one that would put it further off than a whole burst takes is
// rejected. A key whose time has passed need not be kept.
type limiter struct {
	burst    int
	interval int64 // nanoseconds in which one request comes back
	now      func() time.Time
	start    time.Time // times are nanoseconds since
	seed     maphash.Seed
	shards   [limiterShards]shard
}

type shard struct {
	mu    sync.Mutex
	whole map[uint64]int64 // by the hash of the key's id
}

// newLimiter returns nil if the limit is none.
func newLimiter(limit RateLimit, now func() time.Time) *limiter {
	if limit.PerSecond == 0 {
		return nil
	}
	return &limiter{
		burst:    limit.Burst,
		interval: max(int64(float64(time.Second)/limit.PerSecond), 1),
		now:      now,
		start:    now(),
		seed:     maphash.MakeSeed(),
	}
}

// A quota is what a key has left after a request.
type quota struct {
	admitted  bool
	remaining int           // requests at once
	whole     time.Duration // until they are as many as they can be
	next      time.Duration // until one would be admitted, if this one was not
}

// take counts a request of the key.
func (l *limiter) take(keyID string) quota {
	hash := maphash.String(l.seed, keyID)
	s := &l.shards[hash%limiterShards]
	most := l.interval * int64(l.burst)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := int64(l.now().Sub(l.start))
	whole, known := s.whole[hash]
	if !known {
		whole = now
	}
	whole = min(max(whole, now), now+most) // a clock that is set back keeps nobody out for longer
	later := whole + l.interval
	if later-now > most {
		s.whole[hash] = whole
		return quota{false, 0, time.Duration(whole - now), time.Duration(later - now - most)}
	}
	if !known {
		s.makeRoom(now)
	}
	s.whole[hash] = later
	return quota{true, int((most - (later - now)) / l.interval), time.Duration(later - now), 0}
}

// makeRoom sees to it that there is room for one more key: it forgets those whose
// burst is whole and, if that frees less than a quarter, some others.
func (s *shard) makeRoom(now int64) {
	if s.whole == nil {
		s.whole = make(map[uint64]int64)
	}
	if len(s.whole) < shardKeys {
		return
	}
	for hash, whole := range s.whole {
		if whole <= now {
			delete(s.whole, hash)
		}
	}
	for hash := range s.whole {
		if len(s.whole) <= shardKeys*3/4 {
			return
		}
		delete(s.whole, hash) // any
	}
}

// admit counts a request of the key and tells the client so. A request that is one
// too many it answers, 429 RATE_LIMIT_EXCEEDED, and returns false.
func (l *limiter) admit(w http.ResponseWriter, keyID string) bool {
	if l == nil {
		return true
	}
	q := l.take(keyID)
	header := w.Header()
	header.Set(headerLimit, strconv.Itoa(l.burst))
	header.Set(headerRemaining, strconv.Itoa(q.remaining))
	header.Set(headerReset, seconds(q.whole))
	if q.admitted {
		return true
	}
	after := seconds(q.next)
	header.Set("Retry-After", after)
	WriteError(w, http.StatusTooManyRequests, CodeRateLimit,
		fmt.Sprintf("This API key has made too many requests. Send the next one in %s s.", after))
	return false
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
