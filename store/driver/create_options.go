package driver

import (
	"crypto/sha256"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// CreateOptions are the conditions and side effects of [KeyStore.CreateKey] and
// [Webhooks.CreateWebhook]. The zero value has none.
type CreateOptions struct {
	// MaxCount is the maximum number of the account's keys, or webhooks, after the creation. 0
	// means no limit.
	MaxCount int

	// IdempotencyKey identifies the request: 1 to 128 bytes, unique within the account's creations
	// of keys, or of webhooks. If empty, the request is not remembered, and the next three fields
	// have no effect.
	IdempotencyKey string
	Fingerprint    [sha256.Size]byte // hash of the request's parameters
	IdempotencyTTL time.Duration     // the store forgets the key after this time, by its clock

	// MaxIdempotencyKeys is the maximum number of idempotency keys, including this one, that the
	// account may have in use. Creations of keys and of webhooks are counted separately. 0 means no
	// limit.
	MaxIdempotencyKeys int

	// By, unless it is zero, is the credential of one of the account's API keys in the same store.
	// The creation succeeds only if that key still exists and its Accepts method returns true.
	By auth.Credential

	// AuditEntry is stored in the same step.
	AuditEntry audit.Entry
}

// A DuplicateRequestError is returned by a store if the account has used the
// idempotency key before.
type DuplicateRequestError struct {
	ID          string            // ID of the key or webhook that the earlier request created
	Fingerprint [sha256.Size]byte // the fingerprint of the earlier request
}

func (*DuplicateRequestError) Error() string { return "this request was already made" }
