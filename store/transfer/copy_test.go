package transfer_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/transfer"
)

// sourceOf returns a store with 20 keys and 20 pending deliveries in two accounts.
func sourceOf(t *testing.T) store.Store {
	t.Helper()
	s := open(t)
	for i := range 20 {
		account := fmt.Sprint("acct_", i%2)
		createKey(t, s, account, fmt.Sprint("key_", i))
		if i < 2 {
			err := s.CreateWebhook(t.Context(), driver.Webhook{
				ID: fmt.Sprint("wh_", i), Account: account, Events: []driver.EventType{alerts.TypeBalanceLow}, WebhookHealth: driver.WebhookHealth{Active: true}, Secret: signing.NewSecret(), CreatedAt: time.Now(),
			}, driver.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		event := driver.EncodedEvent{ID: fmt.Sprint("evt_", i), Account: account, Type: alerts.TypeBalanceLow, Body: []byte("{}")}
		if _, err := s.Enqueue(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func open(t *testing.T) store.Store {
	t.Helper()
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func createKey(t *testing.T, s store.Store, account, id string) {
	t.Helper()
	key := driver.Key{Account: account, ID: id, Hash: driver.Hash{Sum: sha256.Sum256([]byte(id))}, CreatedAt: time.Now()}
	if err := s.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func summary(t *testing.T, s transfer.Store) transfer.Summary {
	t.Helper()
	sums, err := transfer.Summarize(t.Context(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func TestCopy(t *testing.T) {
	source, target := sourceOf(t), open(t)
	var copied, compared int
	sums, err := transfer.Copy(t.Context(), target, source, transfer.CopyOptions{PageSize: 7, Progress: func(p transfer.Progress) {
		switch {
		case p.Comparing && copied != 42:
			t.Errorf("comparison began after %d copied records, want 42", copied)
		case p.Comparing:
			compared = p.Records
		case p.Records < copied || p.Kind == "":
			t.Errorf("progress = %+v after %d records", p, copied)
		default:
			copied = p.Records
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if copied != 42 || compared != 42 {
		t.Errorf("%d records copied, %d compared, want 42", copied, compared)
	}
	if diff := cmp.Diff(summary(t, source), sums); diff != "" {
		t.Errorf("result (-source +got):\n%s", diff)
	}
	if diff := cmp.Diff(sums, summary(t, target)); diff != "" {
		t.Errorf("target (-source +got):\n%s", diff)
	}
}

// A cutTarget is a store in which one Import fails, before or after it adds the records.
type cutTarget struct {
	transfer.Store
	left  int // number of Imports until the failure
	after bool
}

var errCut = errors.New("cut")

func (c *cutTarget) Import(ctx context.Context, records []transfer.Record) error {
	if c.left--; c.left >= 0 {
		return c.Store.Import(ctx, records)
	}
	if c.after {
		if err := c.Store.Import(ctx, records); err != nil {
			return err
		}
	}
	return errCut
}

// A copy may be interrupted after any page. The next copy must complete it, from the beginning or
// from the last position.
func TestCopy_CutShort_IsCompletedByNextCopy(t *testing.T) {
	source := sourceOf(t)
	pages := 0
	for range transfer.Pages(t.Context(), source, "", 5) {
		pages++
	}
	if pages < 8 {
		t.Fatalf("precondition failed: only %d pages", pages)
	}
	for cut := range pages {
		for _, after := range []bool{false, true} {
			for _, resume := range []bool{false, true} {
				target := open(t)
				position := ""
				options := transfer.CopyOptions{PageSize: 5, Progress: func(p transfer.Progress) { position = p.Position }}
				if _, err := transfer.Copy(t.Context(), &cutTarget{target, cut, after}, source, options); !errors.Is(err, errCut) {
					t.Fatalf("Copy = %v, want %v", err, errCut)
				}
				if resume {
					options.After = position
				}
				if _, err := transfer.Copy(t.Context(), target, source, options); err != nil {
					t.Errorf("cut %d, after %v, resumed %v: Copy = %v", cut, after, resume, err)
				}
			}
		}
	}
}

// A leaver is a store that records the place passed to Leave.
type leaver struct {
	store.Store
	left string
}

func (l *leaver) Capabilities() capability.Set {
	return capability.Set{Leave: func(_ context.Context, place string) error {
		l.left = place
		return nil
	}}
}

func TestCopy_TargetHasAnotherKey_ReturnsErrDiffer(t *testing.T) {
	source, target := &leaver{Store: sourceOf(t)}, open(t)
	createKey(t, target, "another", "key")
	options := transfer.CopyOptions{LeftFor: "there"}
	_, err := transfer.Copy(t.Context(), target, source, options)
	if !errors.Is(err, transfer.ErrDiffer) || !strings.Contains(err.Error(), "key: 20 and 21") {
		t.Errorf("Copy = %v, want ErrDiffer with both counts of keys", err)
	}
	if source.left != "" {
		t.Errorf("source marked as moved to %q although the stores differ", source.left)
	}
	if err := target.DeleteKey(t.Context(), "another", "key", nil, audit.Entry{}); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.Copy(t.Context(), target, source, options); err != nil || source.left != "there" {
		t.Errorf("Copy = %v, source marked as moved to %q; want nil and %q", err, source.left, "there")
	}
}

// A broken store reports the records in unreadable as unreadable or, if there are none, fails to
// export.
type broken struct {
	transfer.Store
	unreadable []string
}

func (b broken) Export(ctx context.Context, account, after string, limit int) (transfer.Page, error) {
	if len(b.unreadable) == 0 {
		return transfer.Page{}, errCut
	}
	page, err := b.Store.Export(ctx, account, after, limit)
	page.Unreadable = b.unreadable
	return page, err
}

func TestCopy_Fails_ReturnsError(t *testing.T) {
	source := sourceOf(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx            context.Context
		target, source transfer.Store
		options        transfer.CopyOptions
		want           error
	}{
		"unreadable":        {t.Context(), open(t), broken{source, []string{"webhook wh_1"}}, transfer.CopyOptions{}, transfer.ErrUnreadable},
		"export fails":      {t.Context(), open(t), broken{source, nil}, transfer.CopyOptions{}, errCut},
		"comparison fails":  {t.Context(), broken{open(t), nil}, source, transfer.CopyOptions{}, errCut},
		"context has ended": {ended, open(t), source, transfer.CopyOptions{}, context.Canceled},
		"invalid position":  {t.Context(), open(t), source, transfer.CopyOptions{After: "nonsense"}, transfer.ErrPosition},
	} {
		if _, err := transfer.Copy(c.ctx, c.target, c.source, c.options); !errors.Is(err, c.want) {
			t.Errorf("%s: Copy = %v, want %v", name, err, c.want)
		}
	}
	for _, size := range []int{-1, 10_001} {
		if _, err := transfer.Copy(t.Context(), open(t), source, transfer.CopyOptions{PageSize: size}); err == nil || !strings.Contains(err.Error(), "PageSize") {
			t.Errorf("Copy with pages of %d = %v, want an error about PageSize", size, err)
		}
	}
}

// A shifted store exports its last event with a changed publication time.
type shifted struct {
	transfer.Store
	to time.Time
}

func (s shifted) Export(ctx context.Context, account, after string, limit int) (transfer.Page, error) {
	page, err := s.Store.Export(ctx, account, after, limit)
	for i, record := range page.Records {
		if event, ok := record.(*transfer.Event); ok && event.ID == "evt_19" {
			other := *event
			other.PublishedAt = s.to
			page.Records[i] = &other
		}
	}
	return page, err
}

// A store replaces future times on import, so these times may differ.
func TestCopy_EventPublishedInFuture_IsNoDifference(t *testing.T) {
	source, target := sourceOf(t), open(t)
	future := time.Date(2046, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := transfer.Copy(t.Context(), target, shifted{source, future}, transfer.CopyOptions{}); err != nil {
		t.Errorf("Copy with an event of the future = %v, want nil", err)
	}
	if _, err := transfer.Copy(t.Context(), target, shifted{source, time.Now().AddDate(0, -1, 0)}, transfer.CopyOptions{}); !errors.Is(err, transfer.ErrDiffer) {
		t.Errorf("Copy with an event of another time = %v, want ErrDiffer", err)
	}
}
