package webhooks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateParams describes the webhook to create.
type CreateParams struct {
	// URL is where the events are sent: an https URL with a host, of at most 2,048 ASCII characters,
	// without user information or fragment, and not in a special-purpose network.
	URL string

	// Events are the types to subscribe to, at least one, or only [AllEvents]; duplicates are removed.
	Events []EventType

	// Resources limits the webhook to events of these resources of the host: 1 to 64 names of 1 to
	// 128 visible ASCII characters, compared exactly. A limited webhook gets no events without a
	// resource. Nil means no limit.
	Resources []string

	// Threshold is [Webhook.Threshold]; zero means none.
	Threshold uint64

	// Headers are sent with each request, for example for a gateway before the receiver: at most 10
	// with different names, and 4 KiB in all. Names are HTTP tokens. Reserved are Host, User-Agent, the
	// signature header, traceparent, tracestate, names that begin with Content-, Webhook-, Proxy- or
	// X-Forwarded-, and others with a meaning for the connection. Values are visible ASCII characters
	// with spaces between; secret values have at least 8. If an IdempotencyKey is used again, Create
	// does not compare the values of secret headers with those of the first call.
	Headers []Header

	// Signatures are the schemes that sign requests: [signing.V1], [signing.V1a] or both. Without V1,
	// requests have no [Config.SignatureHeader]. V1a signs with a key pair derived from the secret:
	// [Webhook.PublicKeys]. Nil means V1.
	Signatures []signing.Scheme

	// Secret is an existing signing secret, for a webhook that moves here from another system; parse
	// it with [signing.ParseSecret]. If an IdempotencyKey is used again, Create does not compare
	// Secret with the first call's secret. Zero means a new secret.
	Secret signing.Secret

	// IdempotencyKey makes it safe to repeat Create for 24 hours: 1 to 128 visible ASCII characters
	// that the account uses only for this creation. If empty, each call creates a webhook.
	IdempotencyKey string

	// By is the API key of the request, see apikeys.KeyService.Credential. If the key is deleted or
	// rotated before the webhook is created, Create creates none and returns
	// [auth.ErrCredentialChanged]. If zero, the host itself creates the webhook.
	By auth.Credential

	// If is called before the webhook is stored. If an earlier call with the same IdempotencyKey
	// created the webhook, If is called again with its current state.
	If Condition
}

// ParseSecret is like [signing.ParseSecret], but returns a [*apierr.ValidationError], without any part
// of the text.
func ParseSecret(text string) (signing.Secret, error) {
	secret, err := signing.ParseSecret(text)
	if err != nil {
		err = input.Invalid("secret", "must be whsec_ followed by the padded standard base64 of 24 to 64 bytes")
	}
	return secret, err
}

// Create creates an active webhook for the account, with a new signing secret or params.Secret,
// and returns it. An account is any string of 1 to 128 bytes of UTF-8 without control characters.
// params.If decides whether the caller may create the webhook.
//
// Create returns [apierr.ErrLimit], in a [*apierr.LimitError], if the account has
// [Config.MaxPerAccount] webhooks, or half of that if params.By is limited. It returns
// [apierr.ErrIdempotencyKeys] if the account has used too many idempotency keys in 24 hours: ten
// times [Config.MaxPerAccount] for API keys, five times if params.By is limited, and twenty times
// for the host.
//
// If the account has used params.IdempotencyKey before, no webhook is created. For the same params
// Create returns the existing webhook in its current state, with the zero Secret, or
// [apierr.ErrCreatedThenDeleted] if it was deleted. For other params it returns
// [apierr.ErrIdempotencyMismatch]. Of several concurrent calls, only one creates the webhook.
func (s *WebhookService) Create(ctx context.Context, account string, params CreateParams) (Webhook, error) {
	if err := input.Account(account); err != nil {
		return Webhook{}, err
	}
	if err := input.JoinInvalid(apierr.ValidationErrors(s.Validate(params))); err != nil {
		return Webhook{}, err
	}
	params.Events, _ = s.events.check(params.Events, nil)
	resources, _ := parseResources(params.Resources)
	params.Headers, _ = s.checkHeaders(params.Headers, false)
	if params.Signatures != nil {
		params.Signatures, _ = storedSignatures(params.Signatures)
	}
	now := s.now().UTC().Truncate(time.Millisecond)
	webhook := Webhook{
		ID:            s.ids.New(id.Webhook, now),
		Account:       account,
		URL:           params.URL,
		Resources:     resources,
		WebhookHealth: driver.WebhookHealth{Active: true},
		Version:       1,
		Threshold:     params.Threshold,
		Headers:       params.Headers,
		Signatures:    params.Signatures,
		Secret:        params.Secret,
		CreatedAt:     now,
	}
	s.events.subscribe(&webhook, params.Events)
	if webhook.Secret.IsZero() {
		webhook.Secret = signing.NewSecret()
	}
	if err := params.If.ask(Webhook{}, webhook); err != nil {
		return Webhook{}, fmt.Errorf("create webhook: %w", err)
	}
	fingerprint, limit := fields.Sum((*listed.Webhook)(&webhook), fields.Created), apierr.LimitError{Resource: "webhooks", Limit: s.maxCount, Limited: params.By.Limited}
	if limit.Limited {
		limit.Limit = input.LimitedCount(s.maxCount)
	}
	entry := s.entries.of(ctx, audit.WebhookCreated, &webhook)
	err := s.store.CreateWebhook(ctx, webhook, driver.CreateOptions{
		MaxCount:           max(limit.Limit, 0),
		IdempotencyKey:     params.IdempotencyKey,
		Fingerprint:        fingerprint,
		IdempotencyTTL:     input.IdempotencyTTL,
		MaxIdempotencyKeys: input.MaxIdempotencyKeys(s.maxCount, params.By.IsZero(), params.By.Limited),
		By:                 params.By,
		AuditEntry:         entry,
	})
	if err == nil {
		s.dispatcher.reporter.Changed(&entry)
	}
	if duplicate, ok := errors.AsType[*driver.DuplicateRequestError](err); ok {
		webhook, err = s.replay(ctx, account, duplicate, fingerprint, params.If)
	}
	if errors.Is(err, apierr.ErrLimit) {
		err = &limit
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("create webhook: %w", err)
	}
	s.changed(ctx, webhook)
	return webhook, nil
}

// Validate returns the validation errors that params would cause in Create, at most one per field.
func (s *WebhookService) Validate(params CreateParams) (wrong []*apierr.ValidationError) {
	refuse := func(err error) {
		if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
			wrong = append(wrong, rule)
		}
	}
	refuse(checkURL(params.URL, s.guard))
	_, err := s.events.check(params.Events, nil)
	refuse(err)
	_, err = parseResources(params.Resources)
	refuse(err)
	_, err = s.checkHeaders(params.Headers, false)
	refuse(err)
	if params.Signatures != nil {
		_, err = storedSignatures(params.Signatures)
		refuse(err)
	}
	if reason := input.IdempotencyKey(params.IdempotencyKey); reason != "" {
		refuse(input.Invalid("Idempotency-Key", reason))
	}
	return wrong
}

func parseResources(names []string) (auth.Resources, error) {
	resources, err := auth.ParseResources(names)
	if err != nil {
		err = input.Invalid("resources", err.Error())
	}
	return resources, err
}

// replay returns the webhook that an earlier request with the same idempotency key created,
// without its secrets, or ErrIdempotencyMismatch if the parameters differ.
func (s *WebhookService) replay(ctx context.Context, account string, before *driver.DuplicateRequestError, fingerprint [sha256.Size]byte, condition Condition) (Webhook, error) {
	if before.Fingerprint != fingerprint {
		return Webhook{}, apierr.ErrIdempotencyMismatch
	}
	webhook, err := s.store.WebhookByID(ctx, account, before.ID)
	if errors.Is(err, apierr.ErrNotFound) {
		err = apierr.ErrCreatedThenDeleted
	}
	if err == nil {
		dropExpired(&webhook, s.now())
		err = condition.ask(webhook, webhook)
	}
	hideSecrets(&webhook)
	return webhook, err
}
