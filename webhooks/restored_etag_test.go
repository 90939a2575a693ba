package webhooks_test

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// After a restore, a rotation must not give a webhook the tag that another secret had before.
func TestRotateSecret_AfterRestore_HasAnotherETag(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	made := subscribe(t, service, anyURL)
	lost, err := service.RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{})
	if err != nil {
		t.Fatal(err)
	}
	restored := memory.New() // the backup is from before the rotation
	if err := restored.Import(t.Context(), []transfer.Record{&transfer.Webhook{Webhook: made}}); err != nil {
		t.Fatal(err)
	}
	later := webhooks.Config{Now: func() time.Time { return time.Now().Add(time.Second) }}
	again, err := newService(t, restored, later).RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{})
	if err != nil {
		t.Fatal(err)
	}
	if fields.Equal((*listed.Webhook)(&lost), (*listed.Webhook)(&again), fields.Versioned) {
		t.Error("two secrets of a webhook have one ETag")
	}
}
