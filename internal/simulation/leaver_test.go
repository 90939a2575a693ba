package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// A leaver is a customer who joins, gets some events, is erased, and joins again with the same
// account and the same event IDs.
type leaver struct {
	*actor
	lives int
}

func newLeaver(w *world) *leaver {
	return &leaver{actor: newActor(&account{world: w, id: "leaver"}, "leaver", 5)}
}

func (l *leaver) live(ctx context.Context, share float64) { l.paced(8, share, func() { l.life(ctx) }) }

// life runs from the account's first key to its erasure.
func (l *leaver) life(ctx context.Context) {
	l.lives++
	name := fmt.Sprint("l", l.lives)
	l.world.receivers.add(name+"-1", l.account.id, pick(l.rand, well, well, slow, hanging, failing))
	var token apikeys.Token
	l.until(ctx, "comes", "CreateKey", func(ctx context.Context, h *host) (err error) {
		_, token, err = h.api.Keys.Create(ctx, l.account.id, apikeys.CreateParams{Name: name, Scopes: scopes.Specified(), IdempotencyKey: name})
		return err
	})
	var hook []webhooks.Webhook
	l.until(ctx, "subscribes as "+name, "CreateWebhook", func(ctx context.Context, h *host) error {
		_, err := h.api.Webhooks.Create(ctx, l.account.id, webhooks.CreateParams{URL: "https://" + name + "-1.example.com/", Events: []webhooks.EventType{published}})
		l.world.truth(func(ctx context.Context, s store.Store) {
			hook, _ = s.ListWebhooks(ctx, l.account.id, driver.ListQuery{Limit: 9})
		})
		if len(hook) == 1 {
			return nil // the store has it, although the call returned an error
		}
		return errors.Join(err, fmt.Errorf("%d webhooks", len(hook)))
	})
	if len(hook) != 1 {
		l.world.breach("an account that was erased is as one that never was", []string{l.account.id}, "%d webhooks after one was created", len(hook))
		return
	}
	l.world.receivers.signs(name, hook[0].Secret.Reveal(), 0)
	events := 1 + l.rand.IntN(6)
	for i := range events {
		if l.rand.IntN(4) == 0 { // the deliveries of later events end as dead
			l.world.receivers.setMood(name+"-1", leaves)
		}
		event := webhooks.Event{ID: fmt.Sprint("left", i), Account: l.account.id, Data: alerts.TransactionsLimitReached{Used: 1, Limit: 1, Period: name}}
		l.until(ctx, "is told "+event.ID, "Enqueue", func(ctx context.Context, h *host) error { return h.api.Webhooks.Publish(ctx, event) })
		l.world.truth(func(ctx context.Context, s store.Store) {
			list, err := s.EventDeliveries(ctx, l.account.id, event.ID)
			if err != nil || len(list) != 1 || list[0].WebhookID != hook[0].ID {
				l.world.breach("an account that was erased is as one that never was", []string{l.account.id, name}, "%s has the deliveries %v, %v", event.ID, list, err)
			}
		})
	}
	time.Sleep(span(l.rand, time.Millisecond, 20*time.Minute))
	l.until(ctx, "is erased", "EraseAccount", func(ctx context.Context, h *host) error {
		_, err := h.api.Erase(ctx, l.account.id)
		if err != nil { // the erasure was interrupted
			l.world.backups.backUp(ctx)
		}
		return err
	})
	l.world.isDeleted(name)
	l.world.truth(l.judge)
	if status, _ := l.request(ctx, token.Reveal(), "GET", keysPath, nil); status >= 200 && status < 300 {
		l.world.breach("nobody is authorised by a dead key", []string{l.account.id}, "a key of what was erased is let through")
	}
}

// until calls do repeatedly until a call is acknowledged. The first calls meet faults of the
// method.
func (l *leaver) until(ctx context.Context, what, method string, do func(context.Context, *host) error) {
	for try := 0; ; try++ {
		call, end, looks := l.context(ctx)
		undo := func() {}
		if try < 3 {
			undo = l.beset(method)
		}
		err := do(call, l.world.reach())
		undo()
		end()
		l.tell(nil, "%s, context of %d looks: %v", what, looks, err)
		if err == nil || try == 200 {
			return
		}
		time.Sleep(time.Minute)
	}
}

// judge checks that the account has nothing left but the audit entry of its erasure.
func (l *leaver) judge(ctx context.Context, s store.Store) {
	lines := 0
	for page, err := range transfer.Pages(ctx, s, l.account.id, 100) {
		if err != nil {
			l.world.breach("the store can be asked", nil, "Export: %v", err)
		}
		for _, r := range page.Records {
			if n, is := r.(*transfer.AuditEntry); !is || n.Action != audit.AccountErased {
				l.world.breach("nothing is left of what was erased", []string{l.account.id}, "%s: %+v", r.Kind(), r)
			}
			lines++
		}
	}
	if lines > 1 {
		l.world.breach("nothing is left of what was erased", []string{l.account.id}, "%d lines tell that it was erased", lines)
	}
}
