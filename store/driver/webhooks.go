package driver

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// Webhooks is the part of a [WebhookStore] that keeps the webhooks of accounts.
type Webhooks interface {
	// CreateWebhook adds a webhook and, in the same step, the idempotency key of options, if there
	// is one. Each call with an idempotency key also removes some keys that are older than
	// options.IdempotencyTTL, so that they do not accumulate. CreateWebhook checks for these
	// errors, in this order, and stores nothing if it returns one:
	//
	//   - [auth.ErrCredentialChanged]: the credential options.By has changed;
	//   - a [*DuplicateRequestError]: the account has used the key to create a webhook within
	//     options.IdempotencyTTL, even with other parameters, and even if the webhook was deleted;
	//   - ErrExists: a webhook of any account has that ID;
	//   - ErrLimit: the account already has options.MaxCount webhooks;
	//   - ErrIdempotencyKeys: options have a key, and the account already has
	//     options.MaxIdempotencyKeys stored keys.
	CreateWebhook(ctx context.Context, webhook Webhook, options CreateOptions) error

	// WebhookByID returns a webhook, or ErrNotFound.
	WebhookByID(ctx context.Context, account, id string) (Webhook, error)

	// ListWebhooks returns a page of the account's webhooks by descending ID, which is newest
	// first. A page past the end is empty. query.After need not be the ID of an existing webhook.
	ListWebhooks(ctx context.Context, account string, query ListQuery) ([]Webhook, error)

	// UpdateWebhook calls change with a copy of the webhook, stores the changed copy, and returns
	// it. It returns ErrNotFound if there is no such webhook. If change returns an error,
	// UpdateWebhook returns it and stores nothing. ID, Account and CreatedAt keep their values even
	// if change modifies them. No other change of the webhook happens between reading and storing.
	// change may run more than once, and must not call the store. change also gets a zero audit
	// entry to fill in, which is stored in the same step.
	UpdateWebhook(ctx context.Context, account, id string, change func(*Webhook, *audit.Entry) error) (Webhook, error)

	// DeleteWebhook removes a webhook and its pending deliveries. It returns ErrNotFound if there
	// is no such webhook. If check is not nil, DeleteWebhook first calls it with the webhook; if
	// check returns an error, DeleteWebhook returns it and removes nothing. No other change of the
	// webhook happens between check and the removal. check may run more than once, and must not
	// call the store. The audit entry is stored in the same step.
	//
	// From then on Load returns no delivery of the webhook as Ready, and results of earlier
	// attempts are stale. Settled deliveries of the webhook remain. Every method sees the whole
	// removal at once, and no other call waits while many deliveries are removed: Purge may remove
	// their rows later, in steps. A new webhook with the same ID gets none of these rows; its
	// creation may have to wait until they are removed.
	DeleteWebhook(ctx context.Context, account, id string, check func(Webhook) error, entry audit.Entry) error

	// FailingWebhooks returns a page, by descending ID, of the failing webhooks of all accounts. A
	// webhook is failing if it is active, not on hold, has FailedAgain set, and has a FailingSince
	// no later than since. Settlements and UpdateWebhook update this list in the same step.
	FailingWebhooks(ctx context.Context, since time.Time, query ListQuery) ([]Webhook, error)

	// OffWebhooks returns a page, by descending ID, of the webhooks of all accounts that are not
	// active. CreateWebhook, UpdateWebhook and settlements update this list in the same step.
	OffWebhooks(ctx context.Context, query ListQuery) ([]Webhook, error)

	// HeldWebhooks returns a page, by descending ID, of the webhooks of all accounts that are on
	// hold, see [Webhook.Held], active or not. UpdateWebhook updates this list in the same step.
	HeldWebhooks(ctx context.Context, query ListQuery) ([]Webhook, error)
}
