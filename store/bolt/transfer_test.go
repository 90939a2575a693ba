package bolt_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

func TestTransfer(t *testing.T) {
	t.Parallel()
	inMemory := func(*testing.T) store.Store { return memory.New() }
	sealed := func(t *testing.T) store.Store {
		s, err := bolt.Open(filepath.Join(t.TempDir(), "storage.db"), bolt.Sealed(ring(t, "k")))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Run("from memory to a sealed file", func(t *testing.T) { storetest.RunTransfer(t, inMemory, sealed) })
	t.Run("from a sealed file to memory", func(t *testing.T) { storetest.RunTransfer(t, sealed, inMemory) })
}

// The test imports accounts one after another, closes the file and opens it again. The ages of
// events, the pending deliveries and their order, and the known event IDs must be unchanged.
func TestImport_Reopened_KeepsEverything(t *testing.T) {
	const accounts, events, step = 3, 5, 1000
	begin := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	dir := t.TempDir()
	s := open(t, dir)
	var records []transfer.Record
	for a := range accounts {
		account, id := fmt.Sprint("acct_", a), fmt.Sprint("wh_", a)
		records = append(records, &transfer.Webhook{Webhook: driver.Webhook{Account: account, ID: id, URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true}}})
		for i := range events {
			d := transfer.Delivery{WebhookID: id, State: driver.Pending, Made: 1, Wait: -time.Duration(i+1) * time.Minute}
			event := &transfer.Event{PublishedAt: begin.Add(time.Duration(i) * step * time.Millisecond), Deliveries: []transfer.Delivery{d}}
			event.EncodedEvent = driver.EncodedEvent{ID: fmt.Sprint("evt_", i), Account: account, Body: []byte("{}")}
			if i == 0 {
				event.NoBody, event.Forgotten, event.Body, event.Deliveries = true, true, nil, nil
			}
			records = append(records, event)
		}
	}
	if err := s.Import(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	before, err := transfer.Summarize(t.Context(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
	}
	defer func() { _ = s.Close() }()
	after, err := transfer.Summarize(t.Context(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Compare(after); err != nil {
		t.Error(err)
	}
	if err := s.Import(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	if again, err := transfer.Summarize(t.Context(), s, ""); err != nil || after.Compare(again) != nil {
		t.Error("imported again: ", after.Compare(again), err)
	}
	if n, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "evt_0", Account: "acct_0", Body: []byte("{}")}); err != nil || n != 0 {
		t.Error(n, err)
	}
	if list, err := s.EventDeliveries(t.Context(), "acct_0", "evt_0"); err != nil || len(list) != 0 {
		t.Errorf("EventDeliveries of one published again = %v, %v", list, err)
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 99, "wh_1")
	if err != nil || len(tasks) != events-1 {
		t.Fatal(len(tasks), err)
	}
	for i, task := range tasks { // the task that has been due longest comes first
		if want := fmt.Sprint("evt_", events-1-i); task.Event.ID != want || task.Attempt != 2 {
			t.Errorf("claimed %d of %s, want 2 of %s", task.Attempt, task.Event.ID, want)
		}
	}
	for i := range events { // purges only older events, regardless of the order of import
		border := begin.Add(time.Duration(i)*step*time.Millisecond + 1)
		for more := true; more; {
			if more, err = s.Purge(t.Context(), driver.Purge{Payloads: border, Attempts: begin, EventIDs: begin, Limit: 3}); err != nil {
				t.Fatal(err)
			}
		}
		kept := 0
		for page, err := range transfer.Pages(t.Context(), s, "acct_2", 9) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				if e, isEvent := r.(*transfer.Event); isEvent && !e.NoBody {
					kept++
					if e.PublishedAt.Before(border) && i == events-1 {
						t.Errorf("the body of %s is kept, published %v before the border", e.ID, border.Sub(e.PublishedAt))
					}
				}
			}
		}
		if least := events - 1 - i; kept < least {
			t.Errorf("purged up to event %d, of another account %d bodies are kept, want %d at least", i, kept, least)
		}
	}
}
