package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [driver.WebhookStore].
//
// Events are ordered by the time of publishing. An event whose Enqueue is still running may take a
// place before an event already stored, so a client that pages from the newest event at that moment
// may miss it. ListEvents with the oldest event first misses no event.
//
// If an open transaction of the host has published an event with the same id, Enqueue waits for the
// transaction to end, without delaying other events. If ctx ends first, the event is not stored.
func (s *Store) Enqueue(ctx context.Context, encoded driver.EncodedEvent) (deliveries int, err error) {
	s.checkParts()
	deliveries, err = s.publisher.publish(ctx, &encoded)
	return s.enqueued(encoded.Account, deliveries, err)
}

// enqueued returns the result of publishing an event of the account, and notifies the shard's owner
// of new deliveries.
func (s *Store) enqueued(account string, deliveries int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if deliveries > 0 {
		s.changed(account)
	}
	return deliveries, nil
}

// Published starts the deliveries of events that [Store.EnqueueTx] or [Store.PublishTx] published
// for these accounts. Call it after the transaction has committed. Without the call, deliveries
// begin within the time of [PollEvery]. Published returns at once, without waiting for the
// database. Calls before the commit, or for accounts without such events, are harmless.
func (s *Store) Published(accounts ...string) {
	s.changed(accounts...)
}

// EnqueueTx is like Enqueue, but runs in the host's transaction: the event is stored only if the
// transaction commits. Deliveries begin within the time of [PollEvery] after the commit, or at once
// if [Store.Published] is called then.
//
// The event is listed with the time of the call and sent to the webhooks subscribed at that time.
// Commit soon, because an open transaction delays [Store.ListEvents] with the oldest event first,
// and every erasure of an account that begins after it. If a host loses power before its commit,
// its transaction stays open, and Enqueue of the same id waits, until the server ends the
// transaction: set idle_in_transaction_session_timeout. The statement runs with the transaction's
// settings; only ctx limits its time.
func (s *Store) EnqueueTx(ctx context.Context, tx pgx.Tx, encoded driver.EncodedEvent) (deliveries int, err error) {
	return s.enqueueIn(ctx, tx, &encoded)
}

// enqueueIn implements EnqueueTx for an open transaction.
func (s *Store) enqueueIn(ctx context.Context, tx rowQuerier, encoded *driver.EncodedEvent) (deliveries int, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.steps.RUnlock()
	s.checkParts()
	deliveries, _, err = s.enqueue(ctx, tx, encoded, "")
	if deliveries > 0 {
		s.notifier.announceHost()
	}
	return deliveries, err
}

// PublishTx is like [webhooks.WebhookService.Publish], but runs in the host's transaction
// (transactional outbox): the event is delivered only if the transaction commits. See
// [Store.EnqueueTx].
//
//	if err := s.PublishTx(ctx, tx, service, event); err != nil {
//		return err // and roll back
//	}
//	if err := tx.Commit(ctx); err != nil {
//		return err
//	}
//	s.Published(account) // optional: its deliveries begin at once
//
// The event is sent to all webhooks that subscribe to its type, regardless of their thresholds. For
// events that depend on a threshold or limit, call the Report methods of package alerts after the
// commit instead: they choose the receivers and send one event per crossing. If a process crashes
// before its report, the next report makes up for it, so report current values regularly.
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, service *webhooks.WebhookService, event webhooks.Event) error {
	encoded, err := service.Encode(ctx, event)
	if err != nil {
		return err
	}
	_, err = s.EnqueueTx(ctx, tx, encoded)
	return err
}
