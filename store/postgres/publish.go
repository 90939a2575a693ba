package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [webhooks.Store].
//
// Events are ordered by the time of publishing. An event whose Enqueue is under way may be
// listed before one that is already stored; a client that pages through a list of the newest
// first at that moment may miss it. ListEvents with the oldest first misses none.
//
// An event whose id was published in an open transaction of the host waits for the end of
// that transaction, without delaying others. If ctx ends before, it is not stored.
func (s *Store) Enqueue(ctx context.Context, encoded webhooks.EncodedEvent) (deliveries int, err error) {
	s.checkParts()
	deliveries, err = s.publisher.publish(ctx, &encoded)
	return s.enqueued(encoded.Account, deliveries, err)
}

// enqueued returns the result of a step that published something of the account, and has
// its owner look at what is pending.
func (s *Store) enqueued(account string, deliveries int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if deliveries > 0 {
		s.changed(account)
	}
	return deliveries, nil
}

// Published has the deliveries of events begin that were published by [Store.EnqueueTx] or
// [Store.PublishTx], for these accounts: call it once the transaction is committed. Without
// the call they begin within the time of [PollEvery]. It returns at once and needs no
// answer of the database; calls before the commit, or for accounts without such events, do
// no harm.
func (s *Store) Published(accounts ...string) {
	s.changed(accounts...)
}

// EnqueueTx is Enqueue in the host's transaction: the event is stored if the transaction is
// committed, and not otherwise. Deliveries begin within the time of [PollEvery] after the
// commit, or at once if [Store.Published] is called then. The event is listed with the time of the call and sent to the webhooks that were
// subscribed then, so commit soon: until then [Store.ListEvents] with the oldest first is held
// up, and so are erasures of accounts that began later. A host that loses power before its commit leaves the
// transaction open, and Enqueue of the same id waiting, until the server ends it: set
// idle_in_transaction_session_timeout. The statement runs with the transaction's settings;
// only ctx limits its time.
func (s *Store) EnqueueTx(ctx context.Context, tx pgx.Tx, encoded webhooks.EncodedEvent) (deliveries int, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.steps.RUnlock()
	s.checkParts()
	deliveries, _, err = s.enqueue(ctx, tx, &encoded, "")
	if deliveries > 0 {
		s.notifier.announceHost()
	}
	return deliveries, err
}

// PublishTx is [webhooks.WebhookService.Publish] in the host's transaction (transactional
// outbox): the event is delivered if the transaction is committed, and not otherwise. See
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
// An event is sent to all that subscribe to its type: a [webhooks.BalanceLow] heeds no
// webhook's threshold, and is sent again each time. For these, and for limits that approach or
// are reached, call [webhooks.WebhookService.ReportBalance] (ReportBandwidth,
// ReportTransactions) after the commit instead: reports decide who is to be sent what, once
// for each crossing. A report that was lost with its process is made up for by the next one,
// so report now and then what is current.
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, service *webhooks.WebhookService, event webhooks.Event) error {
	encoded, err := service.Encode(event)
	if err != nil {
		return err
	}
	_, err = s.EnqueueTx(ctx, tx, encoded)
	return err
}
