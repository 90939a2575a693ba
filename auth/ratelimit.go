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

// A RateLimit says how many requests each key, and each account, may make; the zero
// RateLimit does not limit them. Rejected requests do not count.
//
// Each process counts by itself, and up to 262,144 keys and as many accounts at a time:
// of more that are all in use at once, some may make more requests than they should.
type RateLimit struct {
	// PerSecond is how many requests a key may make a second in the long run;
	// 0: any number.
	PerSecond float64

	// Burst is how many a key may make at once after a pause: at most what
	// PerSecond amounts to in a year. Default: PerSecond, rounded up.
	Burst int

	// PerAccount is how many times as much as one key the keys of an account may make
	// together, in the long run and at once: a key that may make others must not
	// multiply its limit by that. 1 gives an account as much as a key; set it to what
	// accounts with many programs need. At most 1,000,000; negative: any number.
	// Default: 4.
	PerAccount int
}

func (r RateLimit) withDefaults() (RateLimit, error) {
	switch {
	case !(r.PerSecond >= 0) || math.IsInf(r.PerSecond, 0): // NaN, too
		return r, errors.New("RateLimit.PerSecond must be a number that is not negative")
	case r.Burst < 0:
		return r, errors.New("RateLimit.Burst must not be negative")
	case r.PerSecond == 0 && r.Burst > 0:
		return r, errors.New("RateLimit.PerSecond must be given where RateLimit.Burst is")
	case r.PerAccount > 1_000_000:
		return r, errors.New("RateLimit.PerAccount must be at most 1000000; a negative one is no limit")
	}
	if r.PerAccount == 0 {
		r.PerAccount = 4
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

// A limiter counts requests by the generic cell rate algorithm: of each key, or
// account, it keeps the time at which its burst will be whole again. Every request puts that off by an
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
	whole map[uint64]int64 // by the hash of the id
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

// A quota is what is left after a request.
type quota struct {
	admitted  bool
	most      int           // requests at once
	remaining int           // requests at once, now
	whole     time.Duration // until they are as many as they can be
	next      time.Duration // until one would be admitted, if this one was not
}

// take counts a request of what has that id.
func (l *limiter) take(id string) quota {
	return l.asked(id, func(q quota) (quota, bool) { return q, q.admitted })
}

// asked calls decide with what would be left after a request, and counts it if that
// says so. It returns what decide says is left.
func (l *limiter) asked(id string, decide func(quota) (left quota, count bool)) quota {
	hash := maphash.String(l.seed, id)
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
	q := quota{true, l.burst, int((most - (later - now)) / l.interval), time.Duration(later - now), 0}
	if later-now > most {
		q = quota{false, l.burst, 0, time.Duration(whole - now), time.Duration(later - now - most)}
	}
	left, count := decide(q)
	switch {
	case count && !known:
		s.makeRoom(now)
		s.whole[hash] = later
	case count:
		s.whole[hash] = later
	case known:
		s.whole[hash] = whole
	}
	return left
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

// limiters count requests of keys and of accounts. The zero limiters count nothing.
type limiters struct{ keys, accounts *limiter }

func newLimiters(limit RateLimit, now func() time.Time) limiters {
	l := limiters{keys: newLimiter(limit, now)}
	if l.keys != nil && limit.PerAccount > 0 {
		n := limit.PerAccount
		l.accounts = newLimiter(RateLimit{PerSecond: limit.PerSecond * float64(n), Burst: limit.Burst * n}, now)
	}
	return l
}

// take counts a request of the key and of its account, or of neither if one of them has
// made too many. It returns what the one has left that has less, and whether that is
// the account.
func (l limiters) take(p Principal) (left quota, ofAccount bool) {
	if l.accounts == nil {
		return l.keys.take(p.KeyID), false
	}
	// The key's shard is locked while the account's is, always in this order.
	left = l.keys.asked(p.KeyID, func(key quota) (quota, bool) {
		var admitted bool
		q := l.accounts.asked(p.Account, func(account quota) (quota, bool) {
			admitted = key.admitted && account.admitted
			ofAccount = account.isLess(key)
			if ofAccount {
				return account, admitted
			}
			return key, admitted
		})
		return q, admitted
	})
	return left, ofAccount
}

// isLess reports whether q leaves less than other does.
func (q quota) isLess(other quota) bool {
	switch {
	case q.admitted != other.admitted:
		return other.admitted
	case !q.admitted:
		return q.next > other.next
	}
	return q.remaining < other.remaining
}

// admit counts a request of the key, and of its account, and tells the client so: of
// the two what has less left. A request that is one too many it answers, 429
// RATE_LIMIT_EXCEEDED, and returns false.
func (l limiters) admit(w http.ResponseWriter, p Principal) bool {
	if l.keys == nil {
		return true
	}
	q, ofAccount := l.take(p)
	header := w.Header()
	header.Set(headerLimit, strconv.Itoa(q.most))
	header.Set(headerRemaining, strconv.Itoa(q.remaining))
	header.Set(headerReset, seconds(q.whole))
	if q.admitted {
		return true
	}
	after := seconds(q.next)
	header.Set("Retry-After", after)
	who := "This API key has"
	if ofAccount {
		who = "The API keys of this account have"
	}
	WriteError(w, http.StatusTooManyRequests, CodeRateLimit,
		fmt.Sprintf("%s made too many requests. Send the next one in %s s.", who, after))
	return false
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
