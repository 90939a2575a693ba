package webhooks

import (
	"context"
	"errors"

	"github.com/storageapi/storageapi/internal/creation"
	"github.com/storageapi/storageapi/signing"
)

// The errors of a request that is made again.
var (
	ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")
	ErrCreatedThenDeleted  = errors.New("webhook that this request made is deleted")
)

// made returns the webhook, without its secret, that a request made before that now
// asks for what has that sum.
func (s *WebhookService) made(ctx context.Context, account string, before *DuplicateRequestError, sum creation.Fingerprint) (Webhook, error) {
	if before.Fingerprint != sum {
		return Webhook{}, ErrIdempotencyMismatch
	}
	webhook, err := s.store.WebhookByID(ctx, account, before.ID)
	if errors.Is(err, ErrNotFound) {
		err = ErrCreatedThenDeleted
	}
	webhook.Secret, webhook.PreviousSecret = signing.Secret{}, signing.Secret{}
	return webhook, err
}

// sum stands for what is asked for by params that were checked.
func (p *CreateParams) sum() creation.Fingerprint {
	parts := []string{p.URL, p.BalanceThreshold.String()}
	for _, t := range p.Events {
		parts = append(parts, string(t))
	}
	return creation.FingerprintOf(parts...)
}
