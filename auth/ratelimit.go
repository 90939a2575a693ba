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

// A RateLimit limits the requests of each key and of each account with the generic cell rate
// algorithm (GCRA), a form of token bucket. The zero RateLimit sets no limit. Rejected requests do
// not count.
//
// Each process counts separately. It counts up to 262,144 keys and as many accounts at a time. If
// more are in use at once, some may exceed their limit.
type RateLimit struct {
	// PerSecond is the sustained rate of requests per second of a key, that is, the rate at which
	// tokens return. 0 means unlimited.
	PerSecond float64

	// Burst is the number of requests that a key may make at once after a pause, that is, the size
	// of the bucket. Raise it for clients that send requests in bursts. The maximum is the number
	// of requests that PerSecond allows in a year. Default: PerSecond, rounded up.
	Burst int

	// PerAccount limits all keys of an account together, as a multiple of the limit of a single
	// key, so that a client cannot raise its limit by creating more keys. With 1 an account has the
	// limit of a single key; raise it for accounts with many applications. Maximum: 1,000,000.
	// Negative means unlimited. Default: 4.
	PerAccount int
}

func (r RateLimit) withDefaults() (RateLimit, error) {
	switch {
	case !(r.PerSecond >= 0) || math.IsInf(r.PerSecond, 0): // also rejects NaN
		return r, errors.New("RateLimit.PerSecond must be finite and not negative")
	case r.Burst < 0:
		return r, errors.New("RateLimit.Burst must not be negative")
	case r.PerSecond == 0 && r.Burst > 0:
		return r, errors.New("RateLimit.PerSecond must be set if RateLimit.Burst is")
	case r.PerAccount > 1_000_000:
		return r, errors.New("RateLimit.PerAccount must be at most 1000000; a negative value means no limit")
	}
	if r.PerAccount == 0 {
		r.PerAccount = 4
	}
	if r.Burst == 0 {
		r.Burst = int(min(math.Ceil(r.PerSecond), math.MaxInt32))
	}
	if r.Burst > math.MaxInt32 || float64(r.Burst) > r.PerSecond*(365*24*time.Hour).Seconds() {
		return r, errors.New("RateLimit.Burst must not exceed 2147483647 or the number of requests that RateLimit.PerSecond allows in a year")
	}
	return r, nil
}

// The X-RateLimit headers in net/http's canonical form.
const (
	headerLimit     = "X-Ratelimit-Limit"
	headerRemaining = "X-Ratelimit-Remaining"
	headerReset     = "X-Ratelimit-Reset"
)

const (
	limiterShards = 64
	shardKeys     = 4096
)

// A limiter counts requests with the generic cell rate algorithm (GCRA). For each key or account it
// keeps the theoretical arrival time (TAT), which is the time at which the burst will be full
// again. Every request postpones the TAT by interval. A request is rejected if this would put the
// TAT more than a full burst after now. Entries whose TAT has passed can be dropped.
type limiter struct {
	rate
	now    func() time.Time
	start  time.Time // TATs are nanoseconds since start
	seed   maphash.Seed
	shards [limiterShards]shard
}

// A rate is a limit in the terms of GCRA. The zero rate means no limit.
type rate struct {
	burst    int
	interval int64 // nanoseconds until one token returns
}

// perMinute returns the rate of a key's own limit.
func perMinute(requests uint64) rate {
	return rate{int(requests), int64(time.Minute) / int64(requests)}
}

// lower returns the stricter of two rates.
func (r rate) lower(other rate) rate {
	if r.interval == 0 {
		return other
	}
	return rate{min(r.burst, other.burst), max(r.interval, other.interval)}
}

type shard struct {
	mu   sync.Mutex
	tats map[uint64]int64 // theoretical arrival times, by hash of the ID
}

// newLimiter returns a limiter. For the zero RateLimit, its rate is zero.
func newLimiter(limit RateLimit, now func() time.Time) *limiter {
	l := &limiter{now: now, start: now(), seed: maphash.MakeSeed()}
	if limit.PerSecond != 0 {
		l.rate = rate{limit.Burst, max(int64(float64(time.Second)/limit.PerSecond), 1)}
	}
	return l
}

// A quota is what a request leaves of a limit.
type quota struct {
	admitted  bool
	limit     int           // requests in a burst
	remaining int           // requests that can be made now
	reset     time.Duration // until the burst is full again
	next      time.Duration // until a request would be admitted, if this one was rejected
}

// take counts a request of the key or account with this ID if the rate admits the request.
func (l *limiter) take(id string, at rate) quota {
	return l.takeIf(id, at, func(q quota) (quota, bool) { return q, q.admitted })
}

// takeIf calls decide with the quota that would be left after a request. It counts the request if
// decide returns count, and returns the quota that decide returns.
func (l *limiter) takeIf(id string, at rate, decide func(quota) (left quota, count bool)) quota {
	hash := maphash.String(l.seed, id)
	s := &l.shards[hash%limiterShards]
	full := at.interval * int64(at.burst)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := int64(l.now().Sub(l.start))
	tat, known := s.tats[hash]
	if !known {
		tat = now
	}
	tat = min(max(tat, now), now+full) // if the clock was set back, limits the wait to one burst
	later := tat + at.interval
	q := quota{true, at.burst, int((full - (later - now)) / at.interval), time.Duration(later - now), 0}
	if later-now > full {
		q = quota{false, at.burst, 0, time.Duration(tat - now), time.Duration(later - now - full)}
	}
	left, count := decide(q)
	switch {
	case count && !known:
		s.makeRoom(now)
		s.tats[hash] = later
	case count:
		s.tats[hash] = later
	case known:
		s.tats[hash] = tat
	}
	return left
}

// makeRoom makes room for one more entry. It first removes entries whose burst is full. If that
// frees less than a quarter of the space, it also removes arbitrary other entries.
func (s *shard) makeRoom(now int64) {
	if s.tats == nil {
		s.tats = make(map[uint64]int64)
	}
	if len(s.tats) < shardKeys {
		return
	}
	for hash, tat := range s.tats {
		if tat <= now {
			delete(s.tats, hash)
		}
	}
	for hash := range s.tats {
		if len(s.tats) <= shardKeys*3/4 {
			return
		}
		delete(s.tats, hash) // any entry will do
	}
}

// limiters count the requests of keys and of accounts.
type limiters struct{ keys, accounts *limiter } // accounts is nil without a limit

func newLimiters(limit RateLimit, now func() time.Time) limiters {
	l := limiters{keys: newLimiter(limit, now)}
	if limit.PerSecond > 0 && limit.PerAccount > 0 {
		n := limit.PerAccount
		l.accounts = newLimiter(RateLimit{PerSecond: limit.PerSecond * float64(n), Burst: limit.Burst * n}, now)
	}
	return l
}

// take counts a request of the key, at its rate, and of its account. If either is over its limit,
// take counts nothing. It returns the smaller of the two quotas, and whether that is the account's.
func (l limiters) take(p *Principal, at rate) (left quota, ofAccount bool) {
	if l.accounts == nil {
		return l.keys.take(p.KeyID, at), false
	}
	// The order of the locks is always the key's shard first, then the account's.
	left = l.keys.takeIf(p.KeyID, at, func(key quota) (quota, bool) {
		var admitted bool
		q := l.accounts.takeIf(p.Account, l.accounts.rate, func(account quota) (quota, bool) {
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

// isLess reports whether q is a smaller quota than other.
func (q quota) isLess(other quota) bool {
	switch {
	case q.admitted != other.admitted:
		return other.admitted
	case !q.admitted:
		return q.next > other.next
	}
	return q.remaining < other.remaining
}

// admit counts a request of the key and of its account, and sets the headers to the smaller of the
// two quotas. If the request exceeds a limit, it answers 429 RATE_LIMIT_EXCEEDED and returns false.
func (l limiters) admit(w http.ResponseWriter, p *Principal) bool {
	at := l.keys.rate
	if p.RateLimit > 0 {
		at = at.lower(perMinute(p.RateLimit))
	}
	if at.interval == 0 {
		return true
	}
	q, ofAccount := l.take(p, at)
	header := w.Header()
	header.Set(headerLimit, strconv.Itoa(q.limit))
	header.Set(headerRemaining, strconv.Itoa(q.remaining))
	header.Set(headerReset, seconds(q.reset))
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
		fmt.Sprintf("%s made too many requests. Retry in %s s.", who, after))
	return false
}

// seconds formats a duration in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// forget discards the count of an ID.
func (l *limiter) forget(id string) {
	if l == nil {
		return
	}
	hash := maphash.String(l.seed, id)
	s := &l.shards[hash%limiterShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tats, hash)
}
