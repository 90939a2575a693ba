package storageapitest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// attempts returns the single delivery of an event, with its attempts.
func attempts(t testing.TB, kit *storageapitest.Kit, event string) (webhooks.Delivery, []webhooks.Attempt) {
	t.Helper()
	list, err := kit.API.Webhooks.EventDeliveries(t.Context(), kit.Account, event)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d deliveries of %s, %v", len(list), event, err)
	}
	return list[0], list[0].Attempts
}

func TestScripts(t *testing.T) {
	tests := []struct {
		name    string
		script  []storageapitest.Behavior
		classes []webhooks.ErrorClass // error classes of the attempts
		status  []int                 // response statuses of the requests
		state   webhooks.DeliveryState
		after   time.Duration // minimum time until the last request
	}{
		{"none", nil, []webhooks.ErrorClass{""}, []int{200}, webhooks.Delivered, 0},
		{"slow", []storageapitest.Behavior{storageapitest.Slow(10 * time.Second)}, []webhooks.ErrorClass{""}, []int{200}, webhooks.Delivered, 0},
		{"too slow, once", []storageapitest.Behavior{storageapitest.Slow(20 * time.Second).Times(1)},
			[]webhooks.ErrorClass{webhooks.ClassTimeout, ""}, []int{0, 200}, webhooks.Delivered, 15 * time.Second},
		{"500 for a day", []storageapitest.Behavior{storageapitest.Status(500).For(24 * time.Hour)},
			slices.Concat(slices.Repeat([]webhooks.ErrorClass{webhooks.ClassStatus}, 7), []webhooks.ErrorClass{""}),
			slices.Concat(slices.Repeat([]int{500}, 7), []int{200}), webhooks.Delivered, 24 * time.Hour},
		{"410", []storageapitest.Behavior{storageapitest.Status(http.StatusGone)}, []webhooks.ErrorClass{webhooks.ClassStatus}, []int{410}, webhooks.Dead, 0},
		{"reset", []storageapitest.Behavior{storageapitest.Reset().Times(2)},
			[]webhooks.ErrorClass{webhooks.ClassConnection, webhooks.ClassConnection, ""}, []int{0, 0, 200}, webhooks.Delivered, time.Minute},
		{"down", []storageapitest.Behavior{storageapitest.Down().Times(1)},
			[]webhooks.ErrorClass{webhooks.ClassConnect, ""}, []int{200}, webhooks.Delivered, 4 * time.Second},
		{"asks for an hour", []storageapitest.Behavior{storageapitest.RetryAfter(time.Hour).Times(1)},
			[]webhooks.ErrorClass{webhooks.ClassStatus, ""}, []int{503, 200}, webhooks.Delivered, time.Hour},
		{"a handler", []storageapitest.Behavior{storageapitest.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || !json.Valid(body) {
				t.Errorf("the handler reads %q, %v", body, err)
			}
			fmt.Fprint(w, "thanks")
		}))}, []webhooks.ErrorClass{""}, []int{200}, webhooks.Delivered, 0},
		{"one after the other", []storageapitest.Behavior{storageapitest.Down().For(time.Second), storageapitest.OK().For(time.Second), storageapitest.Status(500).Times(1)},
			[]webhooks.ErrorClass{webhooks.ClassConnect, webhooks.ClassStatus, ""}, []int{500, 200}, webhooks.Delivered, time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			storageapitest.Bubble(t, func(t *testing.T) {
				kit := storageapitest.New(t)
				receiver := kit.Subscribe(alerts.TypeBalanceLow)
				receiver.Script(test.script...)
				began := time.Now()
				event := publish(t, kit, 1)[0]
				kit.WaitIdle()

				delivery, made := attempts(t, kit, event)
				var classes []webhooks.ErrorClass
				for _, attempt := range made {
					classes = append(classes, attempt.Class)
				}
				if diff := cmp.Diff(test.classes, classes); diff != "" || delivery.State != test.state {
					t.Errorf("%s after attempts (-want +got):\n%s", delivery.State, diff)
				}
				var status []int
				requests := receiver.Requests()
				for _, request := range requests {
					status = append(status, request.Status)
					if request.Event.ID != event || request.Event.Type != alerts.TypeBalanceLow || request.Err != nil {
						t.Errorf("a request tells %+v, %v", request.Event, request.Err)
					}
				}
				if diff := cmp.Diff(test.status, status); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				if after := requests[len(requests)-1].At.Sub(began); after < test.after || after > test.after*2+time.Hour {
					t.Errorf("the last request came after %v, want %v or somewhat more", after, test.after)
				}
			})
		})
	}
}

// TestWholeSchedule runs all retries of the default schedule, about 75 hours, with a fixed seed.
func TestWholeSchedule(t *testing.T) {
	run := func(seed uint64) (ids []string, at []time.Duration) {
		storageapitest.Bubble(t, func(t *testing.T) {
			kit := storageapitest.New(t, storageapitest.Seed(seed))
			down, up := kit.Subscribe(alerts.TypeBalanceLow), kit.Subscribe(alerts.TypeBalanceLow)
			down.Script(storageapitest.Status(500))
			began := time.Now()
			ids = publish(t, kit, 3)
			kit.WaitIdle()
			for _, receiver := range []*storageapitest.Receiver{down, up} {
				for _, request := range receiver.Requests() {
					ids, at = append(ids, request.Event.ID), append(at, request.At.Sub(began))
				}
			}
			if n := len(up.Events()); n != 3 {
				t.Errorf("%d events arrived where nothing fails", n)
			}
		})
		return ids, at
	}
	ids, at := run(1)
	if last := slices.Max(at); last < 60*time.Hour || last > 91*time.Hour {
		t.Errorf("the last attempt was made after %v, want 75 hours ±20 %%", last)
	}
	idsAgain, atAgain := run(1)
	if diff := cmp.Diff(ids, idsAgain) + cmp.Diff(at, atAgain); diff != "" {
		t.Errorf("another run of the same seed (-before +now):\n%s", diff)
	}
	if _, other := run(2); cmp.Equal(at, other) {
		t.Error("another seed makes the same run")
	}
}

// A receiver must reject requests signed with a secret that it does not trust.
func TestSecrets(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t, storageapitest.Config(storageapi.Config{Webhooks: webhooks.Config{SignatureHeader: "X-Acme-Signature"}}))
		receiver := kit.Subscribe(alerts.TypeBalanceLow)
		rotated, err := kit.API.Webhooks.RotateSecret(t.Context(), kit.Account, receiver.Webhook.ID, webhooks.RotateParams{})
		if err != nil {
			t.Fatal(err)
		}
		event := publish(t, kit, 1)[0]
		time.Sleep(time.Second)
		if got := receiver.Requests(); len(got) != 1 || got[0].Status != http.StatusUnauthorized || got[0].Err == nil || len(receiver.Events()) != 0 {
			t.Errorf("after a rotation: %+v", got)
		}
		receiver.Trust(rotated.Secret)
		if got := receiver.Next(); got.ID != event {
			t.Errorf("the next event is %s, want %s", got.ID, event)
		}
	})
}

// Code under test creates a webhook over HTTP for a receiver with a name of its choice.
func TestKit_CodeCreatesWebhook_ReceiverGetsEvents(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t)
		receiver := kit.Receiver("hooks.customer.example")
		key := kit.Key(scopes.AccountRead)
		response := key.Do(kit.API, "POST", "/v2/notifications/webhooks", `{"url":"`+receiver.URL+`in","events":["balance.low"]}`)
		var made struct{ Secret string }
		if err := json.NewDecoder(response.Body).Decode(&made); err != nil || response.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %v", response.Status, err)
		}
		secret, err := signing.ParseSecret(made.Secret)
		if err != nil {
			t.Fatal(err)
		}
		receiver.Trust(secret)
		ids := publish(t, kit, 2)
		got := []string{receiver.Next().ID, receiver.Next().ID}
		slices.Sort(got)
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Errorf("events (-published +got):\n%s", diff)
		}
	})
}

// Names and addresses outside the kit must be unreachable.
func TestKit_OutsideAddress_IsUnreachable(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t)
		want := map[string]webhooks.ErrorClass{"https://example.org/": webhooks.ClassDNS, "https://1.1.1.1/": webhooks.ClassConnect}
		for url := range want {
			if _, err := kit.API.Webhooks.Create(t.Context(), kit.Account, webhooks.CreateParams{URL: url, Events: []webhooks.EventType{alerts.TypeBalanceLow}}); err != nil {
				t.Fatal(err)
			}
		}
		event := publish(t, kit, 1)[0]
		kit.WaitIdle()
		list, err := kit.API.Webhooks.EventDeliveries(t.Context(), kit.Account, event)
		if err != nil {
			t.Fatal(err)
		}
		for _, delivery := range list {
			webhook, err := kit.API.Webhooks.Get(t.Context(), kit.Account, delivery.WebhookID)
			if err != nil {
				t.Fatal(err)
			}
			if got := delivery.Attempts[0].Class; delivery.State != webhooks.Dead || got != want[webhook.URL] {
				t.Errorf("%s: %s, class %q, want %q", webhook.URL, delivery.State, got, want[webhook.URL])
			}
		}
	})
}

// For must return the same kit for another account.
func TestKit_OtherAccount_GetsNoEvents(t *testing.T) {
	kit := storageapitest.New(t)
	other := kit.For("acct_2")
	receiver, theirs := kit.Subscribe(alerts.TypeBalanceLow), other.Subscribe(alerts.TypeBalanceLow)
	publish(t, kit, 1)
	receiver.Next()
	kit.WaitIdle()
	other.WaitIdle()
	if got := theirs.Requests(); len(got) != 0 {
		t.Errorf("the other account's receiver got %+v", got)
	}
	key := other.Key(scopes.FilesRead)
	if got := key.Do(kit.API.Auth.Require(scopes.FilesRead, listFiles), "GET", "/v2/files", ""); got.StatusCode != http.StatusOK || key.Account != "acct_2" {
		t.Errorf("%s for a key of %s", got.Status, key.Account)
	}
}

// teamCreated is an event declared by the host.
type teamCreated struct {
	Team string `json:"team"`
}

func (teamCreated) EventType() webhooks.EventType { return "teams.created" }

// The kit must support hosts with their own events and scopes.
func TestVocabulary(t *testing.T) {
	kit := storageapitest.New(t, storageapitest.Config(storageapi.Config{
		Scopes: []scopes.Declaration{{Scope: "teams:read", Description: "List teams"}},
		Webhooks: webhooks.Config{Events: []webhooks.EventDeclaration{{
			Type: "teams.created", Description: "Team created", Scope: "teams:read", Example: teamCreated{"red"},
		}}},
	}))
	receiver := kit.Subscribe()
	if err := kit.API.Webhooks.Publish(t.Context(), webhooks.Event{Account: kit.Account, Data: teamCreated{"blue"}}); err != nil {
		t.Fatal(err)
	}
	if got := receiver.Next(); got.Type != "teams.created" || string(got.Data) != `{"team":"blue"}` {
		t.Errorf("got %s with %s", got.Type, got.Data)
	}
	if got := kit.Key("teams:read").Do(kit.API.Auth.Require("teams:read", listFiles), "GET", "/v2/teams", ""); got.StatusCode != http.StatusOK {
		t.Errorf("a key of the host's own scope is answered %s", got.Status)
	}
}

// The kit must provide the network of a handler that the host creates, runs and closes.
func TestKit_HandlerOfHost_IsServed(t *testing.T) {
	for name, config := range map[string]storageapi.Config{
		"file":   {Path: filepath.Join(t.TempDir(), "storage.db")},
		"memory": {Store: memory.New()},
	} {
		t.Run(name, func(t *testing.T) {
			api, err := storageapi.NewHandler(config)
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			kit := storageapitest.New(t, storageapitest.Handler(api))
			receiver := kit.Subscribe()
			event := publish(t, kit, 1)[0]
			go api.Run(t.Context())
			if got := receiver.Next(); got.ID != event {
				t.Errorf("got %s, want %s", got.ID, event)
			}
		})
	}
}

// Every node of a host must reach the kit's receivers, and nodes must not make the same IDs.
func TestHandler_TwoNodesOnOneStore_BothUseTheKitsNetwork(t *testing.T) {
	var nodes [2]*storageapi.Handler
	store := memory.New()
	for i := range nodes {
		api, err := storageapi.NewHandler(storageapi.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		nodes[i] = api
	}
	kit := storageapitest.New(t, storageapitest.Handler(nodes[0]), storageapitest.Handler(nodes[1]))
	receiver := kit.Subscribe(alerts.TypeBalanceLow)
	var want []string
	for _, node := range nodes {
		of := *kit
		of.API = node
		want = append(want, publish(t, &of, 1)...)
	}
	go nodes[1].Run(t.Context())
	got := []string{receiver.Next().ID, receiver.Next().ID}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events of the receiver (-want +got):\n%s", diff)
	}
}

// A Key literal with the value of a key that the kit has not created must work, too.
func TestKey_LiteralWithValue_SendsRequests(t *testing.T) {
	kit := storageapitest.New(t)
	key := &storageapitest.Key{Value: kit.Key(scopes.FilesRead).Value}
	if got := key.Do(kit.API, "GET", "/v2/api-keys/self", ""); got.StatusCode != http.StatusOK {
		t.Errorf("got %s, want 200", got.Status)
	}
}

// A wait without success must fail the test and report the state.
func TestFailures(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		var failures strings.Builder
		kit := storageapitest.New(failing{t, &failures}, storageapitest.Patience(time.Hour))
		receiver := kit.Subscribe(alerts.TypeBalanceLow)
		began := time.Now()
		tryTo(func() { receiver.Next() })
		if waited := time.Since(began); waited != time.Hour {
			t.Errorf("Next waited for %v, want an hour", waited)
		}
		receiver.Script(storageapitest.Status(http.StatusTeapot))
		publish(t, kit, 1)
		tryTo(func() { receiver.Next() })
		tryTo(kit.WaitIdle)
		tryTo(func() { kit.Receiver("127.0.0.1") })
		tryTo(func() { kit.Receiver("RECEIVER-1.example.com") })
		tryTo(func() { kit.Key() })
		tryTo(func() { kit.Revoke(&storageapitest.Key{}) })
		want := `https://receiver-1.example.com/ accepted no event for 1h0m0s: it got no request
https://receiver-1.example.com/ accepted no event for 1h0m0s: it got 4 requests, the last answered 418
still 1 deliveries pending for https://receiver-1.example.com/ after 1h0m0s
the host of a receiver must be a name, without a port, such as hooks.customer.example
a receiver at receiver-1.example.com already exists
create a key: `
		if got := strings.ReplaceAll(failures.String(), "storageapitest: ", ""); !strings.HasPrefix(got, want) || !strings.Contains(got, "\nrevoke a key: ") {
			t.Errorf("failures:\n%s\nwant:\n%s…", got, want)
		}
	})
}

// failing is a test that is expected to fail.
type failing struct {
	testing.TB
	failures *strings.Builder
}

func (f failing) Fatalf(format string, args ...any) {
	fmt.Fprintf(f.failures, format+"\n", args...)
	panic(f)
}

// tryTo calls f until it fails the test.
func tryTo(f func()) {
	defer func() {
		if p := recover(); p != nil {
			_ = p.(failing)
		}
	}()
	f()
}

// A test may end while a receiver handles a request.
func TestKit_TestEndsDuringRequest_Succeeds(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t)
		receiver := kit.Subscribe(alerts.TypeBalanceLow)
		receiver.Script(storageapitest.Slow(time.Hour))
		publish(t, kit, 5)
		time.Sleep(time.Second)
		if len(receiver.Requests()) == 0 {
			t.Error("nothing is under way")
		}
	})
}

// The handler must log to the test's output, without secrets.
func TestLogs(t *testing.T) {
	var out bytes.Buffer
	t.Run("one", func(t *testing.T) {
		storageapitest.Bubble(t, func(t *testing.T) {
			kit := storageapitest.New(logged{t, &out})
			receiver := kit.Subscribe(alerts.TypeBalanceLow)
			receiver.Script(storageapitest.Status(http.StatusGone))
			publish(t, kit, 1)
			kit.WaitIdle()
			if secret := receiver.Webhook.Secret.Reveal(); strings.Contains(out.String(), secret) {
				t.Error("the secret is logged")
			}
		})
	})
	if !strings.Contains(out.String(), "webhook=wh_") {
		t.Errorf("the log is %q, want a line about the webhook that was turned off", &out)
	}
}

type logged struct {
	testing.TB
	out io.Writer
}

func (l logged) Output() io.Writer { return l.out }
