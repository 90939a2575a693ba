package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// creators is the number of concurrent goroutines that create keys or fill the file.
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
func openHost(s *scenario, r *receiver, l *ledger) (*host, error) {
	h := &host{scenario: s, receiver: r, ledger: l, run: time.Now().UnixNano()}
	if err := h.open(webhooks.Config{}); err != nil {
		return nil, err
	}
	bare, err := h.api.Webhooks.Encode(context.Background(), h.event(1_000_000))
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.filler = strings.Repeat("f", max(0, s.body-len(bare.Body)))
	return h, nil
}

// open opens the file and starts deliveries.
func (h *host) open(config webhooks.Config) (err error) {
	config.Outbound.RootCAs = h.receiver.trusted
	config.Outbound.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	config.Outbound.MaxIdleConns = h.idle
	h.api, err = storageapi.NewHandler(storageapi.Config{
		Path: h.db, Webhooks: config, Keys: apikeys.Config{MaxPerAccount: -1},
		Logger: slog.New(slog.DiscardHandler),
		Observe: observe.Observer{Attempted: func(a observe.Attempt) {
			if a.Result == observe.Delivered {
				h.settled.Add(1)
			}
		}},
	})
	if err != nil {
		return err
	}
	h.ended = make(chan error, 1)
	go func() { h.ended <- h.api.Run(context.Background()) }()
	return nil
}

// close stops deliveries and closes the file, if it is open.
func (h *host) close() error {
	if h.api == nil {
		return nil
	}
	err := h.api.Close()
	h.api = nil
	return errors.Join(<-h.ended, err)
}

// account returns the account of a webhook. No other run on the file uses it.
func (h *host) account(webhook int) string { return fmt.Sprintf("load_%d_%d", h.run, webhook) }

// recorded returns the number of deliveries recorded as delivered. Each event has one delivery.
func (h *host) recorded() int { return int(h.settled.Load()) }

// event returns the event with the given number.
func (h *host) event(number int) webhooks.Event {
	e := webhooks.Event{
		Account: h.account(number % h.webhooks),
		Data:    alerts.TransactionsLimitReached{Used: int64(number), Limit: 1, Period: h.filler},
	}
	if h.ids == "uuid" {
		var id [16]byte
		_, _ = rand.Read(id[:])
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
		e.ID = fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	return e
}

// prepare creates the webhooks, connects to each, and fills and purges the file.
func (h *host) prepare(ctx context.Context, out io.Writer) error {
	err := inGoroutines(ctx, h.webhooks, func(i int) error {
		_, err := h.api.Webhooks.Create(ctx, h.account(i), webhooks.CreateParams{
			URL: h.receiver.url(i % h.hosts), Events: []webhooks.EventType{alerts.TypeTransactionsLimitReached},
		})
		return err
	})
	if err != nil {
		return err
	}
	if h.purged > 0 {
		if err := h.purge(ctx, out); err != nil {
			return err
		}
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

// purge fills the file, and then purges all of these events with a minimal retention.
func (h *host) purge(ctx context.Context, out io.Writer) error {
	const retention = 50 * time.Millisecond
	began := time.Now()
	if err := h.fill(ctx, h.purged); err != nil {
		return err
	}
	filled := time.Now()
	last := h.event(0)
	last.ID = h.api.Webhooks.NewEventID()
	last.Account = "load_without_webhooks"
	if err := errors.Join(h.api.Webhooks.Publish(ctx, last), h.close()); err != nil {
		return err
	}
	time.Sleep(2 * retention)
	if err := h.open(webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}, Retention: webhooks.Retention{
		Payloads: retention, Attempts: retention, EventIDs: retention,
	}}); err != nil {
		return err
	}
	for { // the oldest event is purged first, so wait for the last one
		_, err := h.api.Webhooks.EventDeliveries(ctx, last.Account, last.ID)
		if errors.Is(err, apierr.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(out, "delivered %d events in %v and purged them in %v\n", h.purged, filled.Sub(began).Round(time.Millisecond), time.Since(filled).Round(time.Millisecond))
	if err := h.close(); err != nil {
		return err
	}
	return h.open(webhooks.Config{})
}

// occupy verifies and creates keys until the returned function is called. That function prints the
// numbers of keys, and returns the error if occupy has failed.
func (h *host) occupy(ctx context.Context, out io.Writer) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var busy sync.WaitGroup
	var verified, created int
	var verifying, creating error
	params := apikeys.CreateParams{Name: "load", Scopes: scopes.Of(scopes.FilesRead)}
	if h.uses > 0 {
		tokens := make([]string, h.uses)
		verifying = inGoroutines(ctx, h.uses, func(i int) error {
			_, token, err := h.api.Keys.Create(ctx, h.account(i), params)
			tokens[i] = token.Reveal()
			return err
		})
		busy.Go(func() {
			atRate(ctx, float64(h.uses)/30, func(i int, _ time.Time) bool {
				if verifying == nil {
					_, verifying = h.api.Keys.Verify(ctx, tokens[i%len(tokens)])
				}
				if verifying == nil {
					verified++
				}
				return verifying == nil
			})
		})
	}
	if h.creating > 0 {
		busy.Go(func() {
			atRate(ctx, float64(h.creating), func(i int, _ time.Time) bool {
				_, _, creating = h.api.Keys.Create(ctx, h.account(i), params)
				if creating == nil {
					created++
				}
				return creating == nil
			})
		})
	}
	return func() error {
		cancel()
		busy.Wait()
		if h.uses+h.creating > 0 {
			fmt.Fprintf(out, "meanwhile verified %d and created %d keys\n", verified, created)
		}
		return cmp.Or(ended(ctx, verifying), ended(ctx, creating))
	}
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
