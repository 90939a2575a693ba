package webhooks

import (
	"crypto/sha256"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// CreateOptions are the conditions under which a [Store] creates a webhook. The zero CreateOptions
// set none.
type CreateOptions struct {
	// MaxCount is the maximum number of webhooks of the account, including this one; 0: unlimited.
	MaxCount int

	// IdempotencyKey identifies the request: 1 to 128 bytes, unique among the account's webhook
	// creations. Empty: the request is not remembered, and the next three fields are ignored.
	IdempotencyKey string
	Fingerprint    [sha256.Size]byte // hash of the parameters
	IdempotencyTTL time.Duration     // older idempotency keys, by the store's clock, are forgotten

	// MaxIdempotencyKeys is the maximum number of the account's idempotency keys for webhook
	// creations, including this one; 0: unlimited.
	MaxIdempotencyKeys int

	// By, unless it is zero, is one of the account's API keys in the same store: the webhook is
	// created only if that key exists and By.Matches its hashes.
	By auth.Credential

	// AuditEntry is stored in the same step as the webhook.
	AuditEntry audit.Entry
}

// A DuplicateRequestError is returned by a [Store] if the account has used the idempotency key
// before.
type DuplicateRequestError struct {
	ID          string            // of the webhook that the first request created
	Fingerprint [sha256.Size]byte // of the first request
}

func (*DuplicateRequestError) Error() string { return "this request was made before" }
