package webhooks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestMaxPerAccount(t *testing.T) {
	for configured, most := range map[int]int{0: 100, 3: 3, -1: 150} {
		service := newService(t, memory.New(), webhooks.Config{MaxPerAccount: configured})
		for range most {
			subscribe(t, service, "https://example.com")
		}
		params := webhooks.CreateParams{URL: "https://example.com", Events: onBalance}
		_, err := service.Create(t.Context(), account, params)
		if configured < 0 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if want := fmt.Sprintf("create webhook: limit reached: an account may have at most %d webhooks", most); !errors.Is(err, apierr.ErrLimit) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := service.Create(t.Context(), "another", params); err != nil {
			t.Error(err)
		}
	}
}

// A creation that is repeated with the same idempotency key creates nothing, and returns no
// secret.
func TestCreate_Repeated_CreatesNothing(t *testing.T) { testbubble.Run(t, testCreateAgain) }

func testCreateAgain(t *testing.T) {
	service := newService(t, memory.New(), webhooks.Config{})
	params := webhooks.CreateParams{URL: "https://example.com", Events: onBalance, Threshold: 5, IdempotencyKey: "request-1"}
	made, err := service.Create(t.Context(), account, params)
	if err != nil || made.Secret.IsZero() {
		t.Fatal(err)
	}
	time.Sleep(24 * time.Hour)
	want := made
	want.Secret = signing.Secret{}
	if got, err := service.Create(t.Context(), account, params); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, change := range []func(*webhooks.CreateParams){
		func(p *webhooks.CreateParams) { p.URL += "/" },
		func(p *webhooks.CreateParams) { p.Events = alerts.EventTypes() },
		func(p *webhooks.CreateParams) { p.Threshold = 0 },
	} {
		other := params
		change(&other)
		if got, err := service.Create(t.Context(), account, other); !errors.Is(err, apierr.ErrIdempotencyMismatch) || got.ID != "" {
			t.Errorf("%+v: got %+v, %v", other, got, err)
		}
	}
	if got, err := service.Create(t.Context(), "another", params); err != nil || got.Secret.IsZero() {
		t.Errorf("another account's: %v", err)
	}
	if err := service.Delete(t.Context(), account, made.ID, webhooks.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Create(t.Context(), account, params); !errors.Is(err, apierr.ErrCreatedThenDeleted) {
		t.Errorf("what is deleted: %v", err)
	}
	time.Sleep(time.Millisecond)
	if got, err := service.Create(t.Context(), account, params); err != nil || got.Secret.IsZero() {
		t.Errorf("after 24 hours: %v", err)
	}
	params.IdempotencyKey = "a b"
	var invalid *apierr.ValidationError
	if _, err := service.Create(t.Context(), account, params); !errors.As(err, &invalid) || invalid.Field != "Idempotency-Key" {
		t.Errorf("%q: %v", params.IdempotencyKey, err)
	}
}
