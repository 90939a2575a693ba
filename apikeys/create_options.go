package apikeys

import (
	"crypto/sha256"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// CreateOptions are the conditions and side effects of [Store.CreateKey]. The zero value has
// none.
type CreateOptions struct {
	// MaxCount is the maximum number of the account's keys after the creation; 0: no limit.
	MaxCount int

	// IdempotencyKey identifies the request: 1 to 128 bytes, unique within the account's
	// key creations. Empty: the request is not remembered, and the next three fields
	// have no effect.
	IdempotencyKey string
	Fingerprint    [sha256.Size]byte // hash of the request's parameters
	IdempotencyTTL time.Duration     // older idempotency keys, by the store's clock, are forgotten

	// MaxIdempotencyKeys is how many idempotency keys the account may have in use for
	// creations of keys, this one included; 0: no limit.
	MaxIdempotencyKeys int

	// By, unless it is zero, is the credential of one of the account's API keys. The new
	// key is created only if that key exists and By.Matches its hashes.
	By auth.Credential

	// AuditEntry is stored in the same step as the key.
	AuditEntry audit.Entry
}

// A DuplicateRequestError is returned by a [Store] if the account has used the
// idempotency key before.
type DuplicateRequestError struct {
	ID          string            // the key that the earlier request created
	Fingerprint [sha256.Size]byte // the fingerprint of the earlier request
}

func (*DuplicateRequestError) Error() string { return "this request was made before" }
