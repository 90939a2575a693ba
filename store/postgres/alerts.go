package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// UpdateAlert implements [driver.AlertStore]. It first runs change without a transaction, which
// reads one row and, if change calls Webhooks, the webhooks. If the step changes something,
// UpdateAlert runs change again in a transaction, with the account locked.
func (s *Store) UpdateAlert(ctx context.Context, account, series string, change func(*driver.AlertStep) error) (deliveries int, err error) {
	idle := false
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		kept, step, err := s.alertStep(ctx, s.planned(conn), account, series, change)
		idle = err == nil && !kept.Due && len(step.Events) == 0 && bytes.Equal(step.State, kept.State)
		return err
	})
	if err != nil || idle {
		return 0, err
	}
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		deliveries, err = s.updateAlert(ctx, tx, account, series, change)
		return err
	})
	return s.enqueued(account, deliveries, err)
}

func (s *Store) updateAlert(ctx context.Context, tx pgx.Tx, account, series string, change func(*driver.AlertStep) error) (deliveries int, err error) {
	if err := s.lockOpen(ctx, tx, account); err != nil {
		return 0, err
	}
	_, step, err := s.alertStep(ctx, tx, account, series, change)
	if err != nil {
		return 0, err
	}
	batch := &pgx.Batch{}
	if step.Deferrable && len(step.Events) == 0 {
		batch.Queue(set(deferred))
	}
	if len(step.State) == 0 {
		batch.Queue(s.sql(`delete from storageapi.alerts where account = $1 and series = $2`), account, series)
	} else {
		batch.Queue(s.sql(`insert into storageapi.alerts (account, series, state) values ($1, $2, $3)
			on conflict (account, series) do update set state = excluded.state, due = false`), account, series, step.State)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	for i := range step.Events {
		event := &step.Events[i]
		switch owed, isNew, err := s.enqueue(ctx, tx, &event.EncodedEvent, event.WebhookID); {
		case err != nil:
			return 0, err
		case isNew:
			deliveries += owed
		}
	}
	return deliveries, nil
}

// alertStep runs change on the state of an alert. It returns the previous state and the step. In a
// transaction it locks the webhooks that change reads.
func (s *Store) alertStep(ctx context.Context, db querier, account, series string, change func(*driver.AlertStep) error) (kept, step driver.AlertStep, err error) {
	err = db.QueryRow(ctx, s.sql(`select state, due from storageapi.alerts where account = $1 and series = $2`), account, series).Scan(&kept.State, &kept.Due)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return kept, step, err
	}
	var failed error
	step = driver.AlertStep{State: bytes.Clone(kept.State), Due: kept.Due}
	step.Webhooks = func() []driver.Webhook {
		list, err := s.readable(ctx, db, account)
		failed = errors.Join(failed, err)
		return list
	}
	err = change(&step)
	return kept, step, cmp.Or(failed, err)
}

// readable returns the account's webhooks in ascending order of id, except unreadable ones.
func (s *Store) readable(ctx context.Context, db querier, account string) (list []driver.Webhook, err error) {
	// Lock the webhooks in the same order as settling does, to avoid deadlocks.
	sql := selectWebhooks + `where w.account = $1 order by w.no`
	if _, locks := db.(pgx.Tx); locks {
		sql += ` for share`
	}
	rows, err := db.Query(ctx, s.sql(sql), account)
	if err != nil {
		return nil, err
	}
	var r webhookRow
	_, err = pgx.ForEachRow(rows, r.columns(), func() error {
		if w, err := s.webhook(&r); err == nil {
			list = append(list, w)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b driver.Webhook) int { return strings.Compare(a.ID, b.ID) })
	return list, err
}

// markDue marks the account's series as due.
func (s *Store) markDue(ctx context.Context, tx pgx.Tx, account string) error {
	_, err := tx.Exec(ctx, s.sql(`update storageapi.alerts set due = true where account = $1 and not due`), account)
	return err
}

func scanSeries(row pgx.Row) (series driver.AlertSeries, err error) {
	err = row.Scan(&series.Account, &series.Name)
	return series, err
}

// DueAlerts implements [driver.AlertStore].
func (s *Store) DueAlerts(ctx context.Context, limit int) ([]driver.AlertSeries, error) {
	return collect(ctx, s, scanSeries, `select account, series from storageapi.alerts where due limit $1`, limit)
}

// columns returns the keys and times of deduplication keys.
func columns(dedupKeys []driver.DedupKey) (keys []string, until []time.Time) {
	for _, n := range dedupKeys {
		keys, until = append(keys, n.Key), append(until, utc(n.Until))
	}
	return keys, until
}

// UnseenKeys implements [driver.AlertStore].
func (s *Store) UnseenKeys(ctx context.Context, account string, dedupKeys []driver.DedupKey) ([]int, error) {
	keys, until := columns(dedupKeys)
	return collect(ctx, s, scan[int], `
		select i.place - 1 from unnest($2::text[], $3::timestamptz[]) with ordinality as i (key, until, place)
		where (select key from storageapi.dedup_keys where account = $1 and (key, until) between (i.key, i.until) and (i.key, i.until) limit 1) is null
		order by 1`, account, keys, until)
}

var noteDedupKeys = query("note_dedup_keys")

// EnqueueOnce implements [driver.AlertStore]. It waits for transactions that are storing one of the
// keys.
func (s *Store) EnqueueOnce(ctx context.Context, event driver.EncodedEvent, dedupKeys []driver.DedupKey) (deliveries int, err error) {
	keys, until := columns(dedupKeys)
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var known int
		err := tx.QueryRow(ctx, s.sql(noteDedupKeys), event.Account, keys, until).Scan(&known)
		if err == nil && known > 0 {
			err = apierr.ErrExists
		}
		if err == nil {
			deliveries, _, err = s.enqueue(ctx, tx, &event, "")
		}
		return err
	})
	return s.enqueued(event.Account, deliveries, err)
}

// UpdateScan implements [driver.AlertStore]. The state is stored in a mark, which the step locks.
// It returns [ErrClock] if this node's clock is wrong.
func (s *Store) UpdateScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	if err := s.checkClock(ctx); err != nil {
		return err
	}
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var before []byte
		if err := tx.QueryRow(ctx, s.sql(`insert into storageapi.marks as m (name, seal) values ('scan', '')
			on conflict (name) do update set seal = m.seal returning seal`)).Scan(&before); err != nil {
			return err
		}
		state, err := change(bytes.Clone(before))
		if err != nil || bytes.Equal(state, before) {
			return err
		}
		_, err = tx.Exec(ctx, s.sql(`update storageapi.marks set seal = $1 where name = 'scan'`), state)
		return err
	})
}
