package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateRecovery implements [driver.WebhookStore].
func (s *Store) CreateRecovery(ctx context.Context, r driver.Recovery, entry audit.Entry) error {
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockOpen(ctx, tx, r.Account); err != nil {
			return err
		}
		no, err := s.webhookNo(ctx, tx, r.Account, r.WebhookID)
		if err != nil {
			return err
		}
		to := utc(r.To)
		if r.To.IsZero() {
			var next int64
			if err := tx.QueryRow(ctx, s.sql(nextEventNumber), s.clock.latest()).Scan(&next, nil); err != nil {
				return err
			}
			to = publishedAt(next).Add(time.Millisecond)
		}
		inserted, err := tx.Exec(ctx, s.sql(`
			insert into storageapi.recoveries (id, account, webhook, webhook_id, states, from_at, to_at, created_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing`),
			r.ID, r.Account, no, r.WebhookID, texts(r.States), stored(r.From), to, utc(r.CreatedAt))
		if err == nil && inserted.RowsAffected() == 0 {
			var exists bool
			err = tx.QueryRow(ctx, s.sql(`select exists (select from storageapi.recoveries where id = $1)`), r.ID).Scan(&exists)
			if exists {
				err = apierr.ErrExists
			} else if err == nil {
				err = driver.ErrRecovering
			}
		}
		if err == nil {
			_, err = tx.Exec(ctx, s.sql(`
				delete from storageapi.recoveries where no <= (
					select no from storageapi.recoveries where webhook = $1 order by no desc offset $2 limit 1) and webhook = $1`),
				no, driver.MaxRecoveries)
		}
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, entry)
	})
}

// RecoveryByID implements [driver.WebhookStore].
func (s *Store) RecoveryByID(ctx context.Context, account, id string) (driver.Recovery, error) {
	return only(ctx, s, func(row pgx.Row) (r driver.Recovery, err error) {
		err = row.Scan(&r.ID, &r.Account, &r.WebhookID, &r.States, (*instant)(&r.From), (*instant)(&r.To), (*instant)(&r.CreatedAt), &r.Recovered, &r.Done)
		return r, err
	}, `select id, account, webhook_id, states, from_at, to_at, created_at, recovered, done
		from storageapi.recoveries where account = $1 and id = $2`, account, id)
}

// AdvanceRecovery implements [driver.WebhookStore]. Calls are serialized.
func (s *Store) AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error) {
	var r recovery
	recovered := 0
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		advanced, recovered = false, 0
		if err := s.lockMark(ctx, tx, "recoveries"); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, s.sql(`
			select no, account, webhook, states, from_at, to_at, next from storageapi.recoveries where not done order by turn, no limit 1`)).
			Scan(&r.no, &r.account, &r.webhook, &r.states, (*instant)(&r.from), &r.to, &r.next)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err == nil:
			advanced = true
			recovered, err = s.advance(ctx, tx, &r, limit)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if recovered > 0 {
		s.changed(r.account)
	}
	return advanced, nil
}

// A recovery is the row of an unfinished recovery.
type recovery struct {
	no, webhook int64
	account     string
	states      []string
	from, to    time.Time
	next        int64 // the event to continue with
}

// advance makes the next deliveries of a recovery pending, and returns their number.
func (s *Store) advance(ctx context.Context, tx pgx.Tx, r *recovery, limit int) (recovered int, err error) {
	var events, pending []int64
	var resources []string
	err = tx.QueryRow(ctx, s.sql(`select resources from storageapi.webhooks where no = $1 for key share`), r.webhook).Scan(&resources)
	if errors.Is(err, pgx.ErrNoRows) { // the webhook was deleted
		err = nil
	} else if err == nil {
		events, err = rowsOf(ctx, tx, scan[int64], s.sql(`
			select event from storageapi.attempt_log where webhook = $1 and event < $3
				and event >= greatest($2, (select event from storageapi.marks where name = 'attempts')) group by event order by event limit $4`),
			r.webhook, max(r.next, numberAfter(r.from)), numberAfter(r.to), limit)
	}
	allowed := events
	if len(events) > 0 && len(resources) > 0 {
		allowed, err = rowsOf(ctx, tx, scan[int64], s.sql(`
			select event from storageapi.event_log where event = any($1::bigint[]) and resource = any($2::text[])`), events, resources)
	}
	if err != nil {
		return 0, err
	}
	batch := &pgx.Batch{}
	if len(events) > 0 {
		var states []int16
		for _, state := range r.states {
			if of := settledAs(driver.DeliveryState(state)); of != stateRetried {
				states = append(states, of)
			}
		}
		if pending, err = s.requeue(ctx, tx, r.account, r.webhook, allowed, states, true); err != nil {
			return 0, err
		}
		if slices.Contains(r.states, string(driver.Pending)) {
			due, err := rowsOf(ctx, tx, scan[int64], s.sql(`
				update storageapi.pending set due = `+confirmedNow+` where webhook = $1 and event = any($2::bigint[]) and due > `+confirmedNow+`
				returning event`), r.webhook, allowed)
			if err != nil {
				return 0, err
			}
			pending = append(pending, due...)
		}
		if n := len(pending); n > 0 {
			batch.Queue(s.sql(noteChange), changeAdded, slices.Repeat([]int16{shardOf(r.account)}, n), slices.Repeat([]int64{r.webhook}, n), pending)
		}
		r.next = events[len(events)-1] + 1
	}
	batch.Queue(s.sql(`update storageapi.recoveries set next = $2, recovered = recovered + $3, done = $4,
		turn = 1 + (select max(turn) from storageapi.recoveries where not done) where no = $1`),
		r.no, r.next, len(pending), len(events) < limit)
	return len(pending), tx.SendBatch(ctx, batch).Close()
}

// lockMark locks the mark called name until the transaction ends. So only one step that locks it
// runs at a time.
func (s *Store) lockMark(ctx context.Context, tx pgx.Tx, name string) error {
	return tx.QueryRow(ctx, s.sql(`select name from storageapi.marks where name = $1 for update`), name).Scan(&name)
}
