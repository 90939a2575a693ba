package webhooks

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/signing"
)

// replay returns the webhook, without its secret, that an earlier request with the same
// idempotency key created, or ErrIdempotencyMismatch if its parameters differ.
func (s *WebhookService) replay(ctx context.Context, account string, before *DuplicateRequestError, fingerprint [sha256.Size]byte) (Webhook, error) {
	if before.Fingerprint != fingerprint {
		return Webhook{}, ErrIdempotencyMismatch
	}
	webhook, err := s.store.WebhookByID(ctx, account, before.ID)
	if errors.Is(err, ErrNotFound) {
		err = ErrCreatedThenDeleted
	}
	webhook.Secret, webhook.PreviousSecret = signing.Secret{}, signing.Secret{}
	return webhook, err
}

// fingerprint stands for what is asked for by params that were checked.
func (p *CreateParams) fingerprint() [sha256.Size]byte {
	parts := []string{p.URL, p.BalanceThreshold.String()}
	for _, t := range p.Events {
		parts = append(parts, string(t))
	}
	return input.Fingerprint(parts...)
}
