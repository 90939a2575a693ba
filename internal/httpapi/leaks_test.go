package httpapi_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testdir"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// TestMain fails if a goroutine is still running after all tests.
func TestMain(m *testing.M) {
	testdir.InMemory()
	goleak.VerifyTestMain(m)
}

// TestCloseDuringPublish closes a Handler while events are published and delivered. Each Publish
// must succeed or report that the file is closed. A new Handler for the file must deliver all
// acknowledged events, and no goroutine may be left running.
func TestCloseDuringPublish(t *testing.T) {
	before := goleak.IgnoreCurrent()
	r := newReceiver(t)
	var taken sync.WaitGroup
	taken.Go(func() {
		for range r.received {
		}
	})
	config := storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db"), Webhooks: r.config()}
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: r.URL, Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = api.Run(context.Background()) }()

	var mu sync.Mutex
	var acknowledged []string
	enough := make(chan struct{})
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for {
				event := webhooks.Event{ID: api.Webhooks.NewEventID(), Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
				err := api.Webhooks.Publish(context.Background(), event)
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("Publish: %v", err)
					}
					return
				}
				mu.Lock()
				if acknowledged = append(acknowledged, event.ID); len(acknowledged) == 100 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := api.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	publishers.Wait()

	again, reopened := newAPI(t, config), time.Now()
	go func() { _ = again.Run(t.Context()) }()
	for _, id := range acknowledged {
		for {
			list, err := again.Webhooks.EventDeliveries(t.Context(), alice, id)
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: %v, %v", id, list, err)
			}
			if list[0].State == webhooks.Delivered {
				break
			}
			if time.Since(reopened) > time.Minute {
				t.Fatalf("%s is %s after a minute", id, list[0].State)
			}
			time.Sleep(time.Millisecond)
		}
	}
	if err := again.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	r.Close()
	close(r.received)
	taken.Wait()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
