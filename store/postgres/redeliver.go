package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
)

var (
	requeue = query("requeue")
	makeDue = query("make_due")
)

// unskip deletes the log rows that record that deliveries of the events $2 to the webhook $1 were
// skipped.
const unskip = `delete from storageapi.attempt_log where webhook = $1 and event = any($2::bigint[]) and number = 0 and state = 3`

// redeliverable selects the number of the event $2 of the account $1, if it has a body.
const redeliverable = `
	select i.event from (` + eventOf + `) i
	where i.event >= (select event from storageapi.marks where name = 'payloads')
		and (select event from storageapi.event_bodies where event between i.event and i.event order by event limit 1) is not null`

// requeue makes settled deliveries pending again, and returns their events. The caller must record
// the change.
func (s *Store) requeue(ctx context.Context, tx pgx.Tx, account string, no int64, events []int64, states []int16, recovered bool) ([]int64, error) {
	pending, err := rowsOf(ctx, tx, scan[int64], s.sql(requeue), no, shardOf(account), events, states, recovered)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	_, err = tx.Exec(ctx, s.sql(unskip), no, pending)
	return pending, err
}

// Redeliver implements [driver.WebhookStore].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var no, event int64
		err := tx.QueryRow(ctx, s.sql(`select no from storageapi.webhooks where account = $1 and id = $2 for key share`), account, webhookID).Scan(&no)
		if err != nil {
			return none(err)
		}
		err = tx.QueryRow(ctx, s.sql(redeliverable), account, eventID).Scan(&event)
		if err != nil {
			return none(err)
		}
		if err := s.redeliver(ctx, tx, account, no, event); err != nil {
			return err
		}
		return s.tell(ctx, tx, entry)
	})
	if err == nil {
		s.changed(account)
	}
	return err
}

// redeliver schedules the delivery as the next to be sent to its webhook, and requests a probe.
func (s *Store) redeliver(ctx context.Context, tx pgx.Tx, account string, no, event int64) error {
	// isPending reports whether the delivery is pending, and if so locks it, so that it stays
	// pending until the transaction ends.
	isPending := func() (bool, error) {
		found, err := tx.Exec(ctx, s.sql(`select event from storageapi.pending where webhook = $1 and event = $2 for update`), no, event)
		return found.RowsAffected() > 0, err
	}
	change := changeNudge
	is, err := isPending()
	if err == nil && !is {
		change = changeFirst
		var settled []int64
		settled, err = s.requeue(ctx, tx, account, no, []int64{event}, []int16{stateDelivered, stateDead, stateSkipped}, false)
		if err == nil && len(settled) == 0 {
			change = changeNudge
			if is, err = isPending(); err == nil && !is { // and no other call has made it pending
				err = apierr.ErrNotFound
			}
		}
	}
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(s.sql(makeDue), no, event)
	batch.Queue(s.sql(noteChange), change, []int16{shardOf(account)}, []int64{no}, []int64{event})
	return tx.SendBatch(ctx, batch).Close()
}
