package webhooks

import (
	"crypto/sha256"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// CreateOptions are what a [Store] heeds when it creates a webhook. The zero CreateOptions
// ask for nothing.
type CreateOptions struct {
	// MaxCount is how many webhooks the account may have in the end; 0: any number.
	MaxCount int

	// IdempotencyKey names the request: 1 to 128 bytes, unique to the account and to the
	// creation of webhooks. Empty: the request is not remembered, and the three fields
	// that follow mean nothing.
	IdempotencyKey string
	Fingerprint    [sha256.Size]byte // of what is asked for
	IdempotencyTTL time.Duration     // older idempotency keys, by the store's clock, are forgotten

	// MaxIdempotencyKeys is how many idempotency keys the account may have in use for
	// creations of webhooks, this one included; 0: any number.
	MaxIdempotencyKeys int

	// By, unless it is zero, is the value of one of the account's API keys in the same store: the
	// webhook is created only if that key is there and By.Matches its hashes.
	By auth.Credential

	// Audit entry is stored in the same step as the webhook.
	AuditEntry audit.Entry
}

// A DuplicateRequestError is returned by a [Store] where the account has used the
// idempotency key before.
type DuplicateRequestError struct {
	ID          string            // of the webhook that was created then
	Fingerprint [sha256.Size]byte // of what was asked for then
}

func (*DuplicateRequestError) Error() string { return "this request was made before" }
