package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A test event is sent like any other event, and its result is returned.
func TestSendTest(t *testing.T) {
	receiver := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	service := newService(t, memory.New(), reaching(&testlog.Book{}))
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

// SendExample sends the declared example of a type, even if the webhook is not subscribed to it.
func TestSendExample(t *testing.T) {
	receiver := newReceiver(t, status(http.StatusOK))
	config := reaching(&testlog.Book{})
	config.Events = []webhooks.EventDeclaration{{Type: "teams.created", Description: "Team created", Scope: scopes.FilesRead, Schema: []byte("{}")}}
	service := newService(t, memory.New(), config)
	webhook := subscribe(t, service, receiver.url("hooks.example.com"))
	got, err := service.SendExample(t.Context(), account, webhook.ID, alerts.TypeBandwidthLimitReached)
	if err != nil || got.Type != alerts.TypeBandwidthLimitReached || got.Attempt.Status != http.StatusOK {
		t.Fatalf("got %+v, %v", got, err)
	}
	form := `^\{"id":"` + got.ID + `","type":"bandwidth\.limit_reached","timestamp":"[^"]+","data":\{"usedBytes":`
	if body := receiver.requests()[0].body; !regexp.MustCompile(form).Match(body) || string(body) != string(got.Body) {
		t.Errorf("sent %s, returned %s", body, got.Body)
	}
	if _, err := service.SendExample(t.Context(), account, "wh_unknown", alerts.TypeBalanceLow); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("to an unknown webhook: %v", err)
	}
	for _, unknown := range []webhooks.EventType{"", "teams.created", "nope.nope"} { // teams.created has no example
		_, err := service.SendExample(t.Context(), account, webhook.ID, unknown)
		if rule, ok := errors.AsType[*apierr.ValidationError](err); !ok || rule.Field != "type" || strings.Contains(rule.Reason, "teams.created") {
			t.Errorf("%q: %v", unknown, err)
		}
	}
}

// For any result of a test event, the webhook does not change, and nothing is stored or sent
// again.
func TestSendTest_AnyResult_ChangesNothing(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"arrived": status(http.StatusOK), "failed": status(http.StatusInternalServerError), "gone": status(http.StatusGone),
		"too late": sleeping(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			diary := &diary{}
			inBubble(t, webhooks.Config{Observe: diary.observer()}, handler, func(b *bubble) {
				webhook := b.subscribe("a")
				b.setActive(webhook, name != "arrived") // test events also go to inactive webhooks
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
				page, err := b.service.ListDeliveries(b.Context(), account, webhook.ID, webhooks.DeliveryQuery{Limit: 1})
				stats, statsErr := b.service.Stats(b.Context())
				stats.MaxIdleConns = 0
				if err != nil || statsErr != nil || len(page.Deliveries) != 0 || stats != (webhooks.Stats{}) {
					t.Errorf("listed %+v, %v; %+v, %v", page, err, stats, statsErr)
				}
				if _, err := b.service.EventDeliveries(b.Context(), account, got.ID); !errors.Is(err, apierr.ErrNotFound) {
					t.Errorf("its deliveries: %v", err)
				}
				if failing, off := diary.told(); len(failing)+len(off) != 0 || len(b.hits.of("")) != 1 {
					t.Errorf("told %v, %v; %d requests", failing, off, len(b.hits.of("")))
				}
			})
		})
	}
}

// Webhooks cannot subscribe to test events, and hosts cannot publish them.
func TestTypeTestIsReserved(t *testing.T) {
	service := newClocked(t)
	_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: []webhooks.EventType{webhooks.TypeTest}})
	wantInvalid(t, err, "events")
	err = service.Publish(t.Context(), webhooks.Event{Account: account, Data: fake{lowBalance}})
	wantInvalid(t, err, "data")
}

// fake pretends to be the data of a test event.
type fake struct{ alerts.BalanceLow }

func (fake) EventType() webhooks.EventType { return webhooks.TypeTest }

// The guard applies to test events as well.
func TestSendTest_SpecialAddress_IsRefused(t *testing.T) {
	receiver := newReceiver(t, status(http.StatusOK))
	store, config := memory.New(), reaching(&testlog.Book{})
	config.Outbound.AllowNetworks = nil
	service := newService(t, store, config)
	webhook := webhooks.Webhook{ID: "wh_1", Account: account, URL: receiver.url("127.0.0.1"), Secret: signing.NewSecret()}
	if err := store.CreateWebhook(t.Context(), webhook, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := service.SendTest(t.Context(), account, "wh_1")
	if err != nil || got.Attempt.Class != webhooks.ClassBlocked || receiver.conns.Load() != 0 {
		t.Errorf("got %+v, %v, after %d connections", got, err, receiver.conns.Load())
	}
}

// create creates a webhook of an account.
func (b *bubble) create(account string) string {
	b.Helper()
	webhook, err := b.service.Create(b.Context(), account, webhooks.CreateParams{URL: "https://a.example.com" + secretPath, Events: onBalance})
	if err != nil {
		b.Fatal(err)
	}
	return webhook.ID
}

// Test events are limited to one at a time per webhook, and their number is limited per account
// and in total. No account can block another one, even if it knows the IDs of the other's
// webhooks.
func TestSendTest_IsLimited(t *testing.T) {
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
		for i := range 8 {
			own := fmt.Sprint("acct_", i)
			for range 8 {
				id := b.create(own)
				send(own, id)
				refused(own, id, webhooks.ErrTesting)
			}
			refused(own, b.create(own), webhooks.ErrTesting)
		}
		refused("acct_none", b.create("acct_0"), apierr.ErrNotFound)
		send("acct_other", b.create("acct_other")) // eight accounts do not block others
		wg.Wait()
		send("acct_0", b.create("acct_0"))
		wg.Wait()
		if n := len(b.hits.of("a")); n != 66 {
			t.Errorf("%d requests, want 66", n)
		}
	})
}

// Forty accounts send as many hanging test events as they are allowed to, which leaves room for
// others.
func TestSendTest_ManyAccountsHang_LeavesRoomForOthers(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleeping(10*time.Second), func(b *bubble) {
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 40 {
			own := fmt.Sprint("acct_", i)
			var admitted atomic.Int32
			for range 9 {
				id := b.create(own)
				admitted.Add(1)
				wg.Go(func() {
					if _, err := b.service.SendTest(b.Context(), own, id); errors.Is(err, webhooks.ErrTesting) {
						admitted.Add(-1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if n := admitted.Load(); n < 1 || n > 8 || i < 8 && n < 8 {
				t.Fatalf("account %d has %d test events under way", i, n)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("they waited for %v", took)
		}
		wg.Wait()
	})
}

// A receiver gets at most one test event a second, and an account sends at most eight a second,
// even if it creates and deletes webhooks.
func TestSendTest_IsRateLimited(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		one, other := b.create(account), b.create(account)
		send := func(account, webhookID string, want time.Duration) {
			t.Helper()
			began := time.Now()
			if got, err := b.service.SendTest(b.Context(), account, webhookID); err != nil || got.Attempt.Status != 200 {
				t.Errorf("got %+v, %v", got, err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
		}
		send(account, one, 0)
		send(account, one, time.Second)
		send(account, other, 0)
		time.Sleep(time.Second / 4)
		send(account, one, 3*time.Second/4)
		time.Sleep(time.Second)
		send(account, one, 0)

		time.Sleep(time.Second)
		before := len(b.hits.of("a"))
		for range 5 {
			began := time.Now()
			for range 8 { // a new webhook each time
				id := b.create(account)
				if _, err := b.service.SendTest(b.Context(), account, id); err != nil {
					t.Error(err)
				}
				if err := b.service.Delete(b.Context(), account, id, webhooks.DeleteParams{}); err != nil {
					t.Error(err)
				}
			}
			send("acct_other", b.create("acct_other"), 0)
			if took := time.Since(began); took > time.Second {
				t.Errorf("8 took %v", took)
			}
		}
		if n := len(b.hits.of("a")) - before; n != 45 {
			t.Errorf("%d requests", n)
		}
	})
}

// Many test events to one webhook are sent once a second. Test events that are canceled while they
// wait do not lengthen the wait of later test events.
func TestSendTest_Flood_SendsOneASecond(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		id := b.create(account)
		end := time.Now().Add(10 * time.Second)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(b.Context(), time.Duration(1+i)*10*time.Millisecond)
					if i == 0 {
						ctx = b.Context()
					}
					_, err := b.service.SendTest(ctx, account, id)
					if err != nil && !errors.Is(err, webhooks.ErrTesting) && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					cancel()
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := len(b.hits.of("a")); n < 9 || n > 11 {
			t.Errorf("%d requests in 10 s", n)
		}
		began := time.Now()
		if _, err := b.service.SendTest(b.Context(), account, id); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A waiting test event ends when its webhook is deleted.
func TestDelete_PendingTestEvent_EndsIt(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		id := b.create(account)
		if _, err := b.service.SendTest(b.Context(), account, id); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := b.service.SendTest(b.Context(), account, id)
			ended <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := b.service.Delete(b.Context(), account, id, webhooks.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, apierr.ErrNotFound) || time.Since(began) != 0 || len(b.hits.of("a")) != 1 {
			t.Errorf("got %v after %v, %d requests", err, time.Since(began), len(b.hits.of("a")))
		}
	})
}

// Once Delete has returned, nothing is sent to the webhook: a running test event is canceled. A
// test event is also canceled if its caller's context ends.
func TestDelete_TestEventInFlight_IsCanceled(t *testing.T) {
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
			"deleted": {func(id string, _ func()) error {
				return b.service.Delete(b.Context(), account, id, webhooks.DeleteParams{})
			}, apierr.ErrNotFound},
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

// Nothing is sent after Delete, regardless of the order of test events and Delete.
func TestDeleteDuringManyTestEvents(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleeping(3*time.Millisecond), func(b *bubble) {
		for i := range 20 {
			webhook := b.subscribe("a")
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for {
						if _, err := b.service.SendTest(b.Context(), account, webhook.ID); errors.Is(err, apierr.ErrNotFound) {
							return
						}
						time.Sleep(100 * time.Microsecond)
					}
				})
			}
			time.Sleep(time.Duration(i) * time.Millisecond / 3)
			if err := b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // waits for requests that were sent earlier
			before := len(b.hits.of("a"))
			wg.Wait()
			time.Sleep(time.Minute)
			if after := len(b.hits.of("a")); after != before {
				t.Fatalf("round %d: %d requests after Delete", i, after-before)
			}
		}
	})
}
