package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A test event is like every other on the wire, and what comes of it is told.
func TestSendTest(t *testing.T) {
	receiver := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	service := newService(t, memory.New(), reaching(&logbook{}))
	webhook := subscribe(t, service, receiver.url("hooks.example.com"))
	got, err := service.SendTest(t.Context(), account, webhook.ID)
	if err != nil {
		t.Fatal(err)
	}
	attempt := got.Attempt
	if attempt.Number != 1 || attempt.Status != 200 || attempt.Class != "" || attempt.Error != "" || attempt.Response != "hello" ||
		attempt.Duration <= 0 || time.Since(attempt.StartedAt) > time.Minute {
		t.Errorf("got %+v", attempt)
	}
	requests := receiver.requests()
	if len(requests) != 1 || requests[0].Header.Get("Webhook-Id") != got.ID {
		t.Fatalf("%d requests, want one for %s", len(requests), got.ID)
	}
	form := `^\{"id":"` + got.ID + `","type":"webhook\.test","timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","data":\{"webhookId":"` + webhook.ID + `"\}\}$`
	if !regexp.MustCompile(form).Match(requests[0].body) || !regexp.MustCompile(`^evt_[0-9A-Z]{26}$`).MatchString(got.ID) {
		t.Errorf("the body is %s, the id %s", requests[0].body, got.ID)
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{webhook.Secret}})
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(requests[0].Header, requests[0].body); err != nil {
		t.Error(err)
	}
}

// Whatever comes of a test event, the webhook is as before, and nothing is stored
// or sent again.
func TestSendTestChangesNothing(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"arrived": status(http.StatusOK), "failed": status(http.StatusInternalServerError), "gone": status(http.StatusGone),
		"too late": sleeping(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			diary := &diary{}
			inBubble(t, webhooks.Config{Hooks: diary.hooks()}, handler, func(b *bubble) {
				webhook := b.subscribe("a")
				b.setActive(webhook, name != "arrived") // also to one that is off
				before, _ := b.service.Get(b.Context(), account, webhook.ID)
				b.start()
				got, err := b.service.SendTest(b.Context(), account, webhook.ID)
				if err != nil || (got.Attempt.Error == "") != (name == "arrived") || (got.Attempt.Class == webhooks.ClassTimeout) != (name == "too late") {
					t.Errorf("got %+v, %v", got, err)
				}
				time.Sleep(100 * time.Hour)
				after, err := b.service.Get(b.Context(), account, webhook.ID)
				if diff := cmp.Diff(before, after); err != nil || diff != "" {
					t.Errorf("the webhook (-before +after), %v:\n%s", err, diff)
				}
				page, err := b.service.Deliveries(b.Context(), account, webhook.ID, webhooks.DeliveryQuery{Limit: 1})
				stats, statsErr := b.service.Stats(b.Context())
				if err != nil || statsErr != nil || len(page.Deliveries) != 0 || stats != (webhooks.Stats{}) {
					t.Errorf("listed %+v, %v; %+v, %v", page, err, stats, statsErr)
				}
				if _, err := b.service.EventDeliveries(b.Context(), account, got.ID); !errors.Is(err, webhooks.ErrNotFound) {
					t.Errorf("its deliveries: %v", err)
				}
				if failing, off := diary.told(); len(failing)+len(off) != 0 || len(b.hits.of("")) != 1 {
					t.Errorf("told %v, %v; %d requests", failing, off, len(b.hits.of("")))
				}
			})
		})
	}
}

// Nobody can subscribe to test events, nor publish them.
func TestTypeTestIsForTestsOnly(t *testing.T) {
	service := newClocked(t)
	_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: []webhooks.EventType{webhooks.TypeTest}})
	wantInvalid(t, err, "events")
	err = service.Publish(t.Context(), webhooks.Event{Account: account, Data: fake{lowBalance}})
	wantInvalid(t, err, "data")
}

// fake pretends to be the data of a test event.
type fake struct{ webhooks.BalanceLow }

func (fake) Type() webhooks.EventType { return webhooks.TypeTest }

// The same guard stands before the receivers of test events.
func TestSendTestIsGuarded(t *testing.T) {
	receiver := newReceiver(t, status(http.StatusOK))
	store, config := memory.New(), reaching(&logbook{})
	config.AllowNetworks = nil
	service := newService(t, store, config)
	webhook := webhooks.Webhook{ID: "wh_1", Account: account, URL: receiver.url("127.0.0.1"), Secret: signing.NewSecret()}
	if err := store.CreateWebhook(t.Context(), webhook, webhooks.Terms{}); err != nil {
		t.Fatal(err)
	}
	got, err := service.SendTest(t.Context(), account, "wh_1")
	if err != nil || got.Attempt.Class != webhooks.ClassBlocked || receiver.conns.Load() != 0 {
		t.Errorf("got %+v, %v, after %d connections", got, err, receiver.conns.Load())
	}
}

// Test events are one at a time to a webhook, and so many in all and of an account;
// nobody is in the way of another account, even with its webhooks' ids.
func TestSendTestIsBounded(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleeping(10*time.Second), func(b *bubble) {
		var wg sync.WaitGroup
		send := func(account, webhookID string) {
			wg.Go(func() {
				if got, err := b.service.SendTest(b.Context(), account, webhookID); err != nil || got.Attempt.Status != 200 {
					t.Errorf("%s: %+v, %v", account, got, err)
				}
			})
			synctest.Wait()
		}
		refused := func(account, webhookID string, want error) {
			t.Helper()
			if _, err := b.service.SendTest(b.Context(), account, webhookID); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", account, err, want)
			}
		}
		create := func(account string) string {
			webhook, err := b.service.Create(b.Context(), account, webhooks.CreateParams{URL: "https://a.example.com" + secretPath, Events: onBalance})
			if err != nil {
				t.Fatal(err)
			}
			return webhook.ID
		}
		for i := range 8 {
			own := fmt.Sprint("acct_", i)
			for j := range 8 {
				id := create(own)
				send(own, id)
				if i+j < 14 {
					refused(own, id, webhooks.ErrTesting)
					refused("acct_none", id, webhooks.ErrNotFound)
				}
			}
			refused(own, create(own), webhooks.ErrTesting)
		}
		other := create("acct_other")
		refused("acct_other", other, webhooks.ErrTesting)
		wg.Wait()
		send("acct_other", other)
		wg.Wait()
		if n := len(b.hits.of("a")); n != 65 {
			t.Errorf("%d requests, want 65", n)
		}
	})
}

// Once Delete has returned nothing is sent to the webhook: a test event under way is
// cut short. So is one whose caller goes away.
func TestDeleteCutsTestEventsShort(t *testing.T) {
	underWay := newGauge()
	handler := func(w http.ResponseWriter, r *http.Request) {
		defer underWay.enter(r.Host)()
		sleeping(10*time.Second)(w, r)
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		for name, test := range map[string]struct {
			end  func(id string, cancel func()) error
			want error
		}{
			"deleted":  {func(id string, _ func()) error { return b.service.Delete(b.Context(), account, id) }, webhooks.ErrNotFound},
			"canceled": {func(_ string, cancel func()) error { cancel(); return nil }, context.Canceled},
		} {
			webhook := b.subscribe(name)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := b.service.SendTest(ctx, account, webhook.ID)
				ended <- err
			}()
			time.Sleep(time.Second)
			begun := time.Now()
			if err := test.end(webhook.ID, cancel); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := <-ended; !errors.Is(err, test.want) || time.Since(begun) != 0 {
				t.Errorf("%s: got %v after %v, want %v at once", name, err, time.Since(begun), test.want)
			}
			synctest.Wait()
			if n := underWay.current(name + ".example.com"); n != 0 {
				t.Errorf("%s: %d requests are under way", name, n)
			}
			cancel()
		}
	})
}

// However test events and Delete fall together, nothing is sent after it.
func TestDeleteDuringManyTestEvents(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleeping(3*time.Millisecond), func(b *bubble) {
		for i := range 20 {
			webhook := b.subscribe("a")
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for {
						if _, err := b.service.SendTest(b.Context(), account, webhook.ID); errors.Is(err, webhooks.ErrNotFound) {
							return
						}
						time.Sleep(100 * time.Microsecond)
					}
				})
			}
			time.Sleep(time.Duration(i) * time.Millisecond / 3)
			if err := b.service.Delete(b.Context(), account, webhook.ID); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // for what was on its way before
			before := len(b.hits.of("a"))
			wg.Wait()
			time.Sleep(time.Minute)
			if after := len(b.hits.of("a")); after != before {
				t.Fatalf("round %d: %d requests after Delete", i, after-before)
			}
		}
	})
}
