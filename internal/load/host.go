package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

// creators is the number of concurrent goroutines that create webhooks or publish first events.
const creators = 256

// A host is the service under test.
type host struct {
	*scenario
	api      *storageapi.Handler
	receiver *receiver
	ledger   *ledger
	run      int64        // distinguishes this run from others on the file
	filler   string       // pads the body
	settled  atomic.Int64 // deliveries recorded as delivered
	ended    chan error   // the result of Run
}

// openHost opens the file and starts deliveries.
func openHost(s *scenario, r *receiver, l *ledger) (h *host, err error) {
	h = &host{scenario: s, receiver: r, ledger: l, run: time.Now().UnixNano(), ended: make(chan error, 1)}
	h.api, err = storageapi.NewHandler(storageapi.Config{
		Path: h.db, Logger: slog.New(slog.DiscardHandler),
		Webhooks: webhooks.Config{Outbound: webhooks.Outbound{
			RootCAs: r.trusted, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, MaxIdleConns: h.idle,
		}},
		Observe: observe.Observer{Attempted: func(a observe.Attempt) {
			if a.Result == observe.Delivered {
				h.settled.Add(1)
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	go func() { h.ended <- h.api.Run(context.Background()) }()
	bare, err := h.api.Webhooks.Encode(context.Background(), h.event(1_000_000))
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.filler = strings.Repeat("f", max(0, s.body-len(bare.Body)))
	return h, nil
}

// close stops deliveries and closes the file.
func (h *host) close() error { return errors.Join(h.api.Close(), <-h.ended) }

// account returns the account of a webhook. No other run on the file uses it.
func (h *host) account(webhook int) string { return fmt.Sprintf("load_%d_%d", h.run, webhook) }

// recorded returns the number of deliveries recorded as delivered. Each event has one delivery.
func (h *host) recorded() int { return int(h.settled.Load()) }

// event returns the event with the given number.
func (h *host) event(number int) webhooks.Event {
	return webhooks.Event{
		Account: h.account(number % h.webhooks),
		Data:    alerts.TransactionsLimitReached{Used: int64(number), Limit: 1, Period: h.filler},
	}
}

// prepare creates the webhooks, and connects to each.
func (h *host) prepare(ctx context.Context) error {
	err := inGoroutines(ctx, h.webhooks, func(i int) error {
		_, err := h.api.Webhooks.Create(ctx, h.account(i), webhooks.CreateParams{
			URL: h.receiver.url(i % h.hosts), Events: []webhooks.EventType{alerts.TypeTransactionsLimitReached},
		})
		return err
	})
	if err != nil {
		return err
	}
	return h.fill(ctx, max(h.webhooks, creators)) // one event for each webhook opens its connection
}

// fill publishes events as fast as possible, and waits until they have arrived.
func (h *host) fill(ctx context.Context, events int) error {
	first := h.ledger.open(events)
	err := inGoroutines(ctx, events, func(i int) error {
		begun := time.Now()
		err := h.api.Webhooks.Publish(context.WithoutCancel(ctx), h.event(first+i))
		h.ledger.published(first+i, begun, begun, err)
		return errors.Join(err, h.ledger.over())
	})
	t, all := h.ledger.await(h.patience, h.recorded)
	return cmp.Or(h.ledger.check(t, all), err)
}

// inGoroutines calls do concurrently with the numbers below n, until ctx ends or a call fails, and
// returns the first error.
func inGoroutines(ctx context.Context, n int, do func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, creators) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
