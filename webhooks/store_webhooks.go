package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// A WebhookStore is the part of a [Store] that keeps the webhooks of accounts.
type WebhookStore interface {
	// CreateWebhook adds a webhook and, in the same step, remembers the request that made
	// it, if options name one. Each call that does so forgets some requests that are older
	// than options.IdempotencyTTL, so that they do not pile up. It checks, in this order,
	// and adds and remembers nothing if it returns
	//
	//   - [auth.ErrCredentialChanged]: the credential options.By is not what it was;
	//   - a [*DuplicateRequestError]: the account has made a request of that name for a
	//     webhook within options.IdempotencyTTL, even one for something else, and even if
	//     its webhook is gone;
	//   - ErrExists: any account has a webhook of that id;
	//   - ErrLimit: the account has options.MaxCount webhooks already;
	//   - ErrIdempotencyKeys: options name a request, and options.MaxIdempotencyKeys of the
	//     account are remembered already.
	CreateWebhook(ctx context.Context, webhook Webhook, options CreateOptions) error

	// WebhookByID returns a webhook, or ErrNotFound.
	WebhookByID(ctx context.Context, account, id string) (Webhook, error)

	// ListWebhooks returns a part of the account's webhooks by descending id, which is
	// newest first; an empty list past the end. The id after which the page begins need
	// not exist any more.
	ListWebhooks(ctx context.Context, account string, page Page) ([]Webhook, error)

	// UpdateWebhook calls change with a copy of the webhook, stores the copy as change
	// left it, and returns that. ErrNotFound if there is no such webhook; an error of
	// change is returned, and nothing is stored. ID, Account and CreatedAt cannot change.
	// No other change of the webhook comes between reading and storing. change may run
	// more than once, and must not call the store. The audit entry that it is given is zero, and
	// is stored in the same step as change leaves it.
	UpdateWebhook(ctx context.Context, account, id string, change func(*Webhook, *audit.Entry) error) (Webhook, error)

	// DeleteWebhook removes a webhook and its pending deliveries, or returns ErrNotFound.
	// check, unless it is nil, is called with the webhook before: if it returns an error,
	// that is returned and nothing is removed. No other change of the webhook comes
	// between; check may run more than once, and must not call the store. The audit entry is
	// stored in the same step.
	//
	// From then on nothing is claimed for the webhook, and settlements of what was claimed
	// before are stale. Its settled deliveries remain. Every method sees the whole removal
	// at once, and no other call waits while many deliveries go: their rows may go later,
	// in steps of Purge. A webhook that is created with the same id has none of them; the
	// creation may have to wait for the rows.
	DeleteWebhook(ctx context.Context, account, id string, check func(Webhook) error, entry audit.Entry) error

	// FailingWebhooks returns a part of the webhooks of all accounts that are active and
	// not on hold, have FailedAgain set, and a FailingSince not after since, by descending
	// id. Settlements and UpdateWebhook list and unlist them in the same step.
	FailingWebhooks(ctx context.Context, since time.Time, page Page) ([]Webhook, error)

	// OffWebhooks returns a part of the webhooks of all accounts that are not active, by
	// descending id. CreateWebhook, UpdateWebhook and settlements list and unlist them in the
	// same step.
	OffWebhooks(ctx context.Context, page Page) ([]Webhook, error)

	// HeldWebhooks returns a part of the webhooks of all accounts that are on hold, see
	// [Webhook.Held], active or not, by descending id. UpdateWebhook lists and unlists them
	// in the same step.
	HeldWebhooks(ctx context.Context, page Page) ([]Webhook, error)
}
