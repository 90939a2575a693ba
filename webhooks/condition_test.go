package webhooks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A condition is called with the state before and after the change. Its error prevents the
// change.
func TestConditions(t *testing.T) {
	service, no := newClocked(t), errors.New("no")
	made := subscribe(t, service, anyURL)
	var asked []string
	condition := func(name string, err error) webhooks.Condition {
		return func(before, after webhooks.Webhook) error {
			asked = append(asked, fmt.Sprint(name, " ", before.Threshold, after.Threshold, before.Secret.Equal(after.Secret)))
			return err
		}
	}
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
	}
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Threshold: new(uint64(1)), If: condition("update", no)})
	refused(err)
	_, err = service.RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{Grace: time.Hour, If: condition("rotate", no)})
	refused(err)
	refused(service.Delete(t.Context(), account, made.ID, webhooks.DeleteParams{If: condition("delete", no)}))
	if diff := cmp.Diff([]string{"update 0 1 true", "rotate 0 0 false", "delete 0 0 false"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || !cmp.Equal(made, got) {
		t.Errorf("it is changed: %+v, %v", got, err)
	}
	asked = nil
	_, err = service.Update(t.Context(), account, "wh_none", webhooks.UpdateParams{If: condition("", no)})
	for _, err := range []error{err, service.Delete(t.Context(), account, "wh_none", webhooks.DeleteParams{If: condition("", no)})} {
		if !errors.Is(err, apierr.ErrNotFound) || len(asked) != 0 {
			t.Errorf("of no webhook: got %v, asked %v", err, asked)
		}
	}
	if err := service.Delete(t.Context(), account, made.ID, webhooks.DeleteParams{If: condition("delete", nil)}); err != nil {
		t.Error(err)
	}
}

// If the webhook changes after the condition was called, the condition is called again.
func TestCondition_WebhookChangesMeanwhile_IsCalledAgain(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	settle := func(t *testing.T, id, event string, outcome driver.Effect, deactivate webhooks.OffReason) {
		w, err := store.WebhookByID(t.Context(), account, id)
		if err != nil {
			t.Fatal(err)
		}
		attempt := webhooks.Attempt{Number: 1, StartedAt: noon, Class: webhooks.ClassStatus, Error: "status 410", Status: 410}
		settled, err := store.Settle(t.Context(), nil, []driver.HealthChange{{
			Account: account, WebhookID: id, Version: w.Version, Health: w.After(outcome, &attempt, event, deactivate),
		}})
		if err != nil || len(settled.Conflicts) > 0 {
			t.Fatalf("settled %v, %v", settled, err)
		}
	}
	tests := []struct {
		name      string
		meanwhile func(t *testing.T, id, event string) error
		again     bool
		want      func(before *webhooks.Webhook) // turns the webhook into the before argument of the second call
	}{
		{"another update", func(t *testing.T, id, _ string) error {
			_, err := service.Update(t.Context(), account, id, webhooks.UpdateParams{Events: alerts.EventTypes()})
			return err
		}, true, func(w *webhooks.Webhook) { w.Events = alerts.EventTypes() }},
		{"a receiver that answers 410", func(t *testing.T, id, event string) error {
			settle(t, id, event, driver.GiveUp, webhooks.OffGone)
			return nil
		}, true, func(w *webhooks.Webhook) {
			w.Active, w.OffReason, w.OffAt, w.FailingSince = false, webhooks.OffGone, noon, noon
		}},
		{"a failed attempt", func(t *testing.T, id, event string) error {
			settle(t, id, event, driver.Retry, "")
			return nil
		}, false, nil},
		{"nothing", func(*testing.T, string, string) error { return nil }, false, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			made := subscribe(t, service, anyURL)
			event := publish(t, service)
			var asked []webhooks.Webhook
			got, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{
				Threshold: new(uint64(5)),
				If: func(before, _ webhooks.Webhook) error {
					if asked = append(asked, before); len(asked) == 1 {
						return test.meanwhile(t, made.ID, event)
					}
					return nil
				},
			})
			want := []webhooks.Webhook{made}
			if test.again {
				second := made
				test.want(&second)
				second.Version = 2
				if !second.FailingSince.IsZero() {
					second.FailingEvent = event
				}
				want = append(want, second)
			}
			if diff := cmp.Diff(want, asked); err != nil || diff != "" || got.Threshold != 5 {
				t.Errorf("%v, %+v; asked (-want +got):\n%s", err, got, diff)
			}
			if test.again && got.Active != want[1].Active {
				t.Errorf("the other change is undone: %+v", got)
			}
			asks := 0
			err = service.Delete(t.Context(), account, made.ID, webhooks.DeleteParams{If: func(before, _ webhooks.Webhook) error {
				if asks++; asks > 1 && before.Active {
					t.Errorf("asked about %+v", before)
				}
				_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Active: new(false)})
				return err
			}})
			if err != nil || asks > 2 || got.Active && asks != 2 {
				t.Errorf("deleted with %v after %d asks", err, asks)
			}
		})
	}
}

// A webhook that is deleted during an update stays deleted.
func TestUpdate_DeletedMeanwhile_StaysDeleted(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{
		Active: new(false),
		If: func(_, _ webhooks.Webhook) error {
			return service.Delete(t.Context(), account, made.ID, webhooks.DeleteParams{})
		},
	})
	if !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if list, err := service.List(t.Context(), account, webhooks.WebhookQuery{Limit: 1}); err != nil || len(list.Webhooks) != 0 {
		t.Errorf("there is %+v, %v", list, err)
	}
}

// For a creation, the condition is called before the webhook is stored. For a repeated creation,
// it is called with the existing webhook.
func TestCondition_Create_SeesWebhook(t *testing.T) {
	service := newClocked(t)
	no := errors.New("no")
	params := webhooks.CreateParams{URL: anyURL, Events: alerts.EventTypes(), IdempotencyKey: "again"}
	params.If = func(before, after webhooks.Webhook) error { return no }
	if _, err := service.Create(t.Context(), account, params); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	var asked []string
	params.If = func(before, after webhooks.Webhook) error {
		if asked = append(asked, before.ID); before.ID != "" && after.ID == before.ID {
			return no
		}
		return nil
	}
	made, err := service.Create(t.Context(), account, params)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := service.Create(t.Context(), account, params); !errors.Is(err, no) || got.ID != "" {
		t.Errorf("made again: %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"", "", made.ID}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if list, err := service.List(t.Context(), account, webhooks.WebhookQuery{Limit: 2}); err != nil || len(list.Webhooks) != 1 {
		t.Errorf("there is %+v, %v", list, err)
	}
}
