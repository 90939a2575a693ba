package webhooks_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// RequestHeader returns the header that the receiver got, except for the signatures.
func TestRequestHeader(t *testing.T) {
	receiver := newReceiver(t, status(http.StatusTeapot))
	config := reaching(&testlog.Book{})
	config.SignatureHeader = "x-signed-by-us"
	service := newService(t, memory.New(), config)
	webhook := subscribe(t, service, receiver.url("hooks.example.com"))
	test, err := service.SendTest(t.Context(), account, webhook.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := receiver.requests()[0].Header.Clone()
	want.Del("Content-Length")
	for _, signature := range []string{"Webhook-Signature", "X-Signed-By-Us"} {
		if want.Get(signature) == "" {
			t.Fatalf("no %s in %v", signature, want)
		}
		want.Set(signature, "[redacted]")
	}
	if diff := cmp.Diff(want, service.RequestHeader(test.ID, test.Attempt)); diff != "" {
		t.Error(diff)
	}
	for _, class := range []webhooks.ErrorClass{
		webhooks.ClassDNS, webhooks.ClassBlocked, webhooks.ClassConnect, webhooks.ClassTLS, webhooks.ClassInternal, webhooks.ClassExpired,
	} {
		if got := service.RequestHeader(test.ID, webhooks.Attempt{Class: class}); got != nil {
			t.Errorf("%s: got %v", class, got)
		}
	}
}
