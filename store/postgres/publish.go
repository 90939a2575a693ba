package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [webhooks.Store].
//
// Events are ordered by when they were published, and one whose Enqueue is under way
// may come to stand before one that is stored already. Who goes through a list
// meanwhile may not see it, or in a later page.
//
// An event whose id an open transaction of the host's has published waits for its end, and
// keeps no others waiting. If ctx ends before, it is not stored.
func (s *Store) Enqueue(ctx context.Context, encoded webhooks.EncodedEvent) (deliveries int, err error) {
	return s.notified(s.publisher.publish(ctx, &encoded))
}

// EnqueueTx is Enqueue as a part of the host's transaction: the event is stored when
// that is committed, and not at all if it is undone. Deliveries begin within the
// time of [PollEvery] after the commit. An event is listed as of when EnqueueTx was
// called, and webhooks get it that were subscribed then: commit soon. A host that loses
// power before it commits keeps the transaction open, and Enqueue of the same id waiting,
// for as long as the server lets it: set idle_in_transaction_session_timeout. The statement
// is planned as others of the transaction are, and ctx alone says how long it may take.
func (s *Store) EnqueueTx(ctx context.Context, tx pgx.Tx, encoded webhooks.EncodedEvent) (deliveries int, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.steps.RUnlock()
	deliveries, _, err = s.enqueue(ctx, tx, &encoded, "")
	return deliveries, err
}

// PublishTx is [webhooks.WebhookService.Publish] as a part of the host's transaction:
// the event is delivered if that is committed, and vanishes with it otherwise. See
// [Store.EnqueueTx].
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, service *webhooks.WebhookService, event webhooks.Event) error {
	encoded, err := service.Encode(event)
	if err != nil {
		return err
	}
	_, err = s.EnqueueTx(ctx, tx, encoded)
	return err
}
