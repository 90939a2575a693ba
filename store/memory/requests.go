package memory

import (
	"maps"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// requests are those that made keys, or webhooks.
type requests struct {
	known map[ref]request // by name
	log   []request       // in the order they were noted, those known and others
	count map[string]int  // of those known, by account
}

// A request is one that made something.
type request struct {
	name ref
	made apikeys.DuplicateRequestError
	at   time.Time
	by   string // the id of the key that made it; empty: none did
}

// forgetStep is how many requests are forgotten at most when one is noted.
const forgetStep = 8

// before returns what the account's earlier request with the same idempotency key made.
func (r *requests) before(account string, options *apikeys.CreateOptions) (made *apikeys.DuplicateRequestError, known bool) {
	before, known := r.known[ref{account, options.IdempotencyKey}]
	if !known || time.Since(before.at) > options.IdempotencyTTL {
		return nil, false
	}
	return &before.made, true
}

// full reports whether the account has made as many requests as it may.
func (r *requests) full(account string, options *apikeys.CreateOptions) bool {
	if options.IdempotencyKey == "" || options.MaxIdempotencyKeys == 0 || r.count[account] < options.MaxIdempotencyKeys {
		return false
	}
	r.forget(len(r.log), options.IdempotencyTTL)
	return r.count[account] >= options.MaxIdempotencyKeys
}

// note remembers a request that has made something, if options name one.
func (r *requests) note(account, id string, options *apikeys.CreateOptions) {
	if options.IdempotencyKey == "" {
		return
	}
	if r.known == nil {
		r.known, r.count = make(map[ref]request), make(map[string]int)
	}
	noted := request{ref{account, options.IdempotencyKey}, apikeys.DuplicateRequestError{ID: id, Fingerprint: options.Fingerprint}, time.Now(), options.By.KeyID}
	if _, known := r.known[noted.name]; !known {
		r.count[account]++
	}
	r.known[noted.name] = noted
	r.log = append(r.log, noted)
	r.forget(forgetStep, options.IdempotencyTTL)
}

// forgetOf forgets the requests that a key has made.
func (r *requests) forgetOf(account, keyID string) {
	maps.DeleteFunc(r.known, func(name ref, noted request) (gone bool) {
		if gone = name.account == account && noted.by == keyID; gone {
			r.uncount(account)
		}
		return gone
	})
}

func (r *requests) uncount(account string) {
	if r.count[account]--; r.count[account] == 0 {
		delete(r.count, account)
	}
}

// forget forgets requests, at most so many, that are older than that.
func (r *requests) forget(most int, age time.Duration) {
	for range min(most, len(r.log)) {
		oldest := r.log[0]
		if time.Since(oldest.at) <= age {
			return
		}
		if r.known[oldest.name] == oldest {
			delete(r.known, oldest.name)
			r.uncount(oldest.name.account)
		}
		r.log = r.log[1:]
	}
}
