package memory

import (
	"maps"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// requests holds the requests that created records of one kind, keys or webhooks, by idempotency
// key.
type requests map[ref]request

// A request records a creation with an idempotency key.
type request struct {
	made driver.DuplicateRequestError
	at   time.Time
	by   string // ID of the API key that made the request; empty means none
}

// before returns the result of the account's earlier request with the same idempotency key.
func (r requests) before(account string, options *driver.CreateOptions) (made *driver.DuplicateRequestError, known bool) {
	before, known := r[ref{account, options.IdempotencyKey}]
	if !known || time.Since(before.at) > options.IdempotencyTTL {
		return nil, false
	}
	return &before.made, true
}

// full reports whether the account has reached its limit of remembered requests. It scans all
// requests, and removes expired ones.
func (r requests) full(account string, options *driver.CreateOptions) bool {
	if options.IdempotencyKey == "" {
		return false
	}
	known := 0
	maps.DeleteFunc(r, func(name ref, noted request) bool {
		old := time.Since(noted.at) > options.IdempotencyTTL
		if !old && name.account == account {
			known++
		}
		return old
	})
	return options.MaxIdempotencyKeys > 0 && known >= options.MaxIdempotencyKeys
}

// note records a creation if options has an idempotency key.
func (r requests) note(account, id string, options *driver.CreateOptions) {
	if options.IdempotencyKey != "" {
		made := driver.DuplicateRequestError{ID: id, Fingerprint: options.Fingerprint}
		r[ref{account, options.IdempotencyKey}] = request{made, time.Now(), options.By.KeyID}
	}
}

// forgetOf forgets the requests that were made with the given API key.
func (r requests) forgetOf(account, keyID string) {
	maps.DeleteFunc(r, func(name ref, noted request) bool { return name.account == account && noted.by == keyID })
}
