package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

func TestReceiver(t *testing.T) {
	old, current := signing.NewSecret(), signing.NewSecret()
	handler, err := newHandler(old.Reveal() + ", " + current.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"id":"evt_1","type":"balance.low","timestamp":"2026-11-20T12:00:00.000Z","data":{}}`)
	for _, test := range []struct {
		name   string
		secret signing.Secret
		want   int
	}{
		{"the current secret", current, http.StatusNoContent},
		{"the old secret", old, http.StatusNoContent},
		{"another secret", signing.NewSecret(), http.StatusUnauthorized},
	} {
		signer, err := signing.NewSigner("", test.secret)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		signer.Sign(r.Header, "evt_1", time.Now(), body)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s: status %d, want %d", test.name, w.Code, test.want)
		}
	}
	if _, err := newHandler(""); err == nil || !strings.HasPrefix(err.Error(), "set WEBHOOK_SECRET") {
		t.Errorf("without a secret: got error %v, want one that says to set WEBHOOK_SECRET", err)
	}
}

// TestEachEventOnce checks that a repeated event is detected, and that the number of remembered IDs
// is limited.
func TestEachEventOnce(t *testing.T) {
	r := &receiver{seen: make(map[string]bool)}
	for i := range 3 * remembered {
		id := fmt.Sprint("evt_", i)
		if !r.isNew(id) {
			t.Fatalf("%s has not come before, and was taken for known", id)
		}
		if r.isNew(id) || !r.seen[fmt.Sprint("evt_", max(0, i-remembered+1))] {
			t.Fatalf("%s, or one of the %d events before it, was forgotten", id, remembered)
		}
		if len(r.seen) > remembered {
			t.Fatalf("%d events are remembered, of at most %d", len(r.seen), remembered)
		}
	}
}
