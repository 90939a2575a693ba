package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

// shardOf returns the shard of an account.
func shardOf(account string) int16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(account))
	return int16(h.Sum32() % shards.Count)
}

const webhookColumns = `w.account, w.id, w.url, w.events, w.active, w.off_reason, w.proven_at, w.failing_since, w.warned_at,
	w.secret, w.created_at, w.previous_secret, w.failing_event, w.failed_again, w.held, w.off_at, w.version, w.fields, w.header_secrets,
	w.paused_until`

// A webhookRow receives webhookColumns: a webhook, with its secrets in stored form.
type webhookRow struct {
	driver.Webhook
	secret, previous, headers []byte
	packed                    packedColumn
}

func (r *webhookRow) columns() []any {
	return []any{
		&r.Account, &r.ID, &r.URL, &r.Events, &r.Active, &r.OffReason, (*instant)(&r.ProvenAt), (*instant)(&r.FailingSince), (*instant)(&r.WarnedAt),
		&r.secret, (*instant)(&r.CreatedAt), &r.previous, &r.FailingEvent, &r.FailedAgain, &r.Held, (*instant)(&r.OffAt), &r.Version, &r.packed, &r.headers,
		(*instant)(&r.PausedUntil),
	}
}

// unknown returns the packed fields that this version does not know.
func (r *webhookRow) unknown() []byte {
	return fields.Unknown(nil, string(r.packed), new(listed.Webhook))
}

// webhook returns the webhook of a row, or an error if a secret or the packed fields cannot be read.
func (s *Store) webhook(r *webhookRow) (w driver.Webhook, err error) {
	w = r.Webhook
	walk := fields.Unpacker(string(r.packed))
	for walk.More() {
		(*listed.Webhook)(&w).Fields(&walk)
	}
	if err = walk.Err(); err == nil {
		w.Secret, err = s.dataKey.Open(r.secret, w.ID)
	}
	if err == nil {
		w.PreviousSecret, err = s.dataKey.Open(r.previous, w.ID)
	}
	var headers string
	if err == nil {
		headers, err = s.dataKey.OpenText(r.headers, w.ID)
	}
	if err == nil {
		err = (*listed.Webhook)(&w).SetHeaderSecrets(headers)
	}
	if err != nil {
		return driver.Webhook{}, fmt.Errorf("webhook %s: %w", r.ID, err)
	}
	switch {
	case len(w.Events) == 0:
		w.Events = nil
	case w.SubscribesAll():
		w.Events = w.Events[:1:1]
	}
	return w, nil
}

// values returns the parameters that insertWebhook and update_webhook.sql share, in the order of
// the statements. unknown holds the packed fields that this version does not recognize.
func (s *Store) values(w *driver.Webhook, unknown []byte) []any {
	return []any{
		w.URL, subscriptions(w), w.Active, string(w.OffReason), stored(w.ProvenAt), stored(w.FailingSince), stored(w.WarnedAt),
		s.dataKey.Seal(w.Secret, w.ID), s.dataKey.Seal(w.PreviousSecret, w.ID),
		w.FailingEvent, w.FailedAgain, w.Held, stored(w.OffAt), packed((*listed.Webhook)(w), unknown), texts(w.Resources.Names()),
		s.dataKey.SealText((*listed.Webhook)(w).HeaderSecrets(), w.ID), stored(w.PausedUntil),
	}
}

// subscriptions returns the column events, which enqueue.sql compares with the type and scope of an
// event.
func subscriptions(w *driver.Webhook) []string {
	list := texts(w.Events)
	if w.SubscribesAll() {
		for _, scope := range w.EventScopes {
			list = append(list, "*:"+string(scope))
		}
	}
	return list
}

// texts converts a list to strings. It never returns nil, which would be null.
func texts[T ~string](list []T) []string {
	return column(list, func(text T) string { return string(text) })
}

// scanWebhook reads webhookColumns.
func (s *Store) scanWebhook(row pgx.Row) (driver.Webhook, error) {
	var r webhookRow
	if err := row.Scan(r.columns()...); err != nil {
		return driver.Webhook{}, err
	}
	return s.webhook(&r)
}

const insertWebhook = `
	insert into storageapi.webhooks (account, id, created_at, url, events, active, off_reason, proven_at, failing_since,
		warned_at, secret, previous_secret, failing_event, failed_again, held, off_at, fields, resources,
		header_secrets, paused_until)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) on conflict (id) do nothing`

var (
	updateWebhook = query("update_webhook")
	deleteWebhook = query("delete_webhook")
)

// row returns the arguments of insertWebhook.
func (s *Store) row(w *driver.Webhook) []any {
	return append([]any{w.Account, w.ID, utc(w.CreatedAt)}, s.values(w, nil)...)
}

// CreateWebhook implements [driver.WebhookStore].
func (s *Store) CreateWebhook(ctx context.Context, w driver.Webhook, options driver.CreateOptions) error {
	return s.create(ctx, webhookRequests, w.Account, w.ID, &options, func(ctx context.Context, tx pgx.Tx) error {
		inserted, err := tx.Exec(ctx, s.sql(insertWebhook), s.row(&w)...)
		if err == nil && inserted.RowsAffected() == 0 {
			err = apierr.ErrExists
		}
		if err != nil {
			return err
		}
		const count = `select count(*) from storageapi.webhooks where account = $1`
		if err := s.checkLimit(ctx, tx, count, w.Account, options.MaxCount, apierr.ErrLimit); err != nil {
			return err
		}
		if err := s.markDue(ctx, tx, w.Account); err != nil {
			return err
		}
		return s.tell(ctx, tx, options.AuditEntry)
	})
}

// selectWebhooks begins the statements that read webhooks.
const selectWebhooks = `select ` + webhookColumns + ` from storageapi.webhooks w `

// WebhookByID implements [driver.WebhookStore].
func (s *Store) WebhookByID(ctx context.Context, account, id string) (driver.Webhook, error) {
	return only(ctx, s, s.scanWebhook, selectWebhooks+`where w.account = $1 and w.id = $2`, account, id)
}

// ListWebhooks implements [driver.WebhookStore].
func (s *Store) ListWebhooks(ctx context.Context, account string, page driver.ListQuery) ([]driver.Webhook, error) {
	return collect(ctx, s, s.scanWebhook, selectWebhooks+`where w.account = $1 and ($2 = '' or w.id < $2) order by w.id desc limit $3`, account, page.After, page.Limit)
}

// FailingWebhooks implements [driver.WebhookStore].
func (s *Store) FailingWebhooks(ctx context.Context, since time.Time, page driver.ListQuery) ([]driver.Webhook, error) {
	return collect(ctx, s, s.scanWebhook, selectWebhooks+`where w.failed_again and w.active and not w.held and w.failing_since <= $1
		and ($2 = '' or w.id < $2) order by w.id desc limit $3`, since, page.After, page.Limit)
}

// OffWebhooks implements [driver.WebhookStore].
func (s *Store) OffWebhooks(ctx context.Context, page driver.ListQuery) ([]driver.Webhook, error) {
	return collect(ctx, s, s.scanWebhook, selectWebhooks+`where not w.active and ($1 = '' or w.id < $1) order by w.id desc limit $2`, page.After, page.Limit)
}

// HeldWebhooks implements [driver.WebhookStore].
func (s *Store) HeldWebhooks(ctx context.Context, page driver.ListQuery) ([]driver.Webhook, error) {
	return collect(ctx, s, s.scanWebhook, selectWebhooks+`where w.held and ($1 = '' or w.id < $1) order by w.id desc limit $2`, page.After, page.Limit)
}

// UpdateWebhook implements [driver.WebhookStore]. The webhook is locked while change runs; events
// published meanwhile use its old state.
func (s *Store) UpdateWebhook(ctx context.Context, account, id string, change func(*driver.Webhook, *audit.Entry) error) (changed driver.Webhook, err error) {
	err = s.changing(ctx, account, func(ctx context.Context, tx pgx.Tx) (entry audit.Entry, err error) {
		old, unknown, err := s.lockWebhook(ctx, tx, account, id)
		if err != nil {
			return entry, err
		}
		w := old
		fields.Copy((*listed.Webhook)(&w))
		if err := change(&w, &entry); err != nil {
			return entry, err
		}
		w.ID = old.ID
		changed, err = s.scanWebhook(tx.QueryRow(ctx, s.sql(updateWebhook), append(append([]any{account, id}, s.values(&w, unknown)...), changeWebhook, shardOf(account))...))
		return entry, err
	})
	if err != nil {
		return driver.Webhook{}, err
	}
	s.owned.updated(changed)
	return changed, nil
}

// changing locks an account, runs change on its webhooks and stores the audit entry that change
// returns.
func (s *Store) changing(ctx context.Context, account string, change func(context.Context, pgx.Tx) (audit.Entry, error)) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockAccount(ctx, tx, account); err != nil {
			return err
		}
		entry, err := change(ctx, tx)
		if err == nil {
			err = s.tell(ctx, tx, entry)
		}
		if err != nil {
			return err
		}
		return s.markDue(ctx, tx, account)
	})
	if err == nil {
		s.changed(account)
	}
	return err
}

// lockWebhook returns a webhook, with the packed fields that this version does not know, and locks
// it until the transaction ends.
func (s *Store) lockWebhook(ctx context.Context, tx pgx.Tx, account, id string) (w driver.Webhook, unknown []byte, err error) {
	var r webhookRow
	row := tx.QueryRow(ctx, s.sql(selectWebhooks+`where w.account = $1 and w.id = $2 for update`), account, id)
	if err := row.Scan(r.columns()...); err != nil {
		return w, nil, none(err)
	}
	w, err = s.webhook(&r)
	return w, r.unknown(), err
}

// DeleteWebhook implements [driver.WebhookStore]. Its duration does not depend on the number of
// pending deliveries: their rows have no effect once the webhook is deleted, and Purge removes them
// later.
func (s *Store) DeleteWebhook(ctx context.Context, account, id string, check func(driver.Webhook) error, entry audit.Entry) error {
	return s.changing(ctx, account, func(ctx context.Context, tx pgx.Tx) (audit.Entry, error) {
		if check != nil {
			w, _, err := s.lockWebhook(ctx, tx, account, id)
			if err == nil {
				err = check(w)
			}
			if err != nil {
				return entry, err
			}
		}
		var no int64
		return entry, none(tx.QueryRow(ctx, s.sql(deleteWebhook), account, id, changeWebhook, shardOf(account)).Scan(&no))
	})
}
