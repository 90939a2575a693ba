package memory

import (
	"maps"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// requests holds the requests that created records of one kind, keys or webhooks.
type requests struct {
	known map[ref]request // by idempotency key
	log   []request       // in the order in which they were recorded, including forgotten requests
	count map[string]int  // number of known requests by account
}

// A request records a creation with an idempotency key.
type request struct {
	name ref
	made driver.DuplicateRequestError
	at   time.Time
	by   string // ID of the API key that made the request; empty means none
}

// forgetStep is the maximum number of old requests that are forgotten when a request is recorded.
const forgetStep = 8

// before returns the result of the account's earlier request with the same idempotency key.
func (r *requests) before(account string, options *driver.CreateOptions) (made *driver.DuplicateRequestError, known bool) {
	before, known := r.known[ref{account, options.IdempotencyKey}]
	if !known || time.Since(before.at) > options.IdempotencyTTL {
		return nil, false
	}
	return &before.made, true
}

// full reports whether the account has reached its limit of remembered requests.
func (r *requests) full(account string, options *driver.CreateOptions) bool {
	if options.IdempotencyKey == "" || options.MaxIdempotencyKeys == 0 || r.count[account] < options.MaxIdempotencyKeys {
		return false
	}
	r.forget(len(r.log), options.IdempotencyTTL)
	return r.count[account] >= options.MaxIdempotencyKeys
}

// note records a creation if options has an idempotency key.
func (r *requests) note(account, id string, options *driver.CreateOptions) {
	if options.IdempotencyKey == "" {
		return
	}
	if r.known == nil {
		r.known, r.count = make(map[ref]request), make(map[string]int)
	}
	noted := request{ref{account, options.IdempotencyKey}, driver.DuplicateRequestError{ID: id, Fingerprint: options.Fingerprint}, time.Now(), options.By.KeyID}
	if _, known := r.known[noted.name]; !known {
		r.count[account]++
	}
	r.known[noted.name] = noted
	r.log = append(r.log, noted)
	r.forget(forgetStep, options.IdempotencyTTL)
}

// forgetOf forgets the requests that were made with the given API key.
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

// forget removes up to most requests that are older than age.
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
