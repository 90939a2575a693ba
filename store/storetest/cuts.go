package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// A cut is a step that a test interrupts by ending its context, by closing the store, or by making
// its commit fail.
type cut struct {
	name string
	do   func(ctx context.Context, s store.Store) error
	done func(t *tester) bool // reports whether the store shows the step as done

	err error // the result of do
}

var errStale = errors.New("the result is stale")

// withAuditEntry contains the kinds of steps that store an audit entry.
var withAuditEntry = map[string]bool{
	"CreateKey": true, "UpdateKey": true, "DeleteKey": true, "CreateWebhook": true, "UpdateWebhook": true, "DeleteWebhook": true,
	"CreateRecovery": true, "Settle": true,
}

// hasAuditEntry reports whether the account has the audit entry.
func (t *tester) hasAuditEntry(account, id string) bool {
	t.Helper()
	return slices.Contains(t.entryIDs(account, audit.Query{}), id)
}

// cuts returns n steps of each kind. No two steps use the same records.
func (t *tester) cuts(n int) []*cut {
	t.Helper()
	var list []*cut
	for i := range n {
		account := numbered("account", i)
		add := func(name string, do func(ctx context.Context, s store.Store) error, done func(t *tester) bool) {
			list = append(list, &cut{name: name + " of " + account, do: do, done: func(t *tester) bool {
				is := done(t)
				if stored := t.hasAuditEntry(account, name); withAuditEntry[name] && stored != is {
					t.Errorf("%s of %s: done = %v, audit entry stored = %v", name, account, is, stored)
				}
				return is
			}})
		}
		note := func(name string) audit.Entry { return newAuditEntry(account, name) }
		found := func(err, notFound error) func(*tester) bool {
			return func(t *tester) bool {
				if err != nil && !errors.Is(err, notFound) {
					t.Error(err)
				}
				return err == nil
			}
		}
		t.createKeys(newKey(account, "kept"), newKey(account, "deleted"))
		add("CreateKey", func(ctx context.Context, s store.Store) error {
			return s.CreateKey(ctx, newKey(account, "new"), driver.CreateOptions{AuditEntry: note("CreateKey")})
		}, func(t *tester) bool {
			_, err := t.store.KeyByHash(t.Context(), hashOf(account, "new"))
			return found(err, apierr.ErrNotFound)(t)
		})
		add("UpdateKey", func(ctx context.Context, s store.Store) error {
			_, err := s.UpdateKey(ctx, account, "kept", func(key *driver.Key, entry *audit.Entry) error {
				key.Hash, *entry = hashOf(account, "rotated"), note("UpdateKey")
				return nil
			})
			return err
		}, func(t *tester) bool {
			_, err := t.store.KeyByHash(t.Context(), hashOf(account, "rotated"))
			return found(err, apierr.ErrNotFound)(t)
		})
		add("RecordKeyUse", func(ctx context.Context, s store.Store) error {
			return s.RecordKeyUse(ctx, []driver.KeyUse{{Account: account, ID: "kept", At: some}})
		}, func(t *tester) bool { return !t.key(account, "kept").LastUsedAt.IsZero() })
		add("DeleteKey", func(ctx context.Context, s store.Store) error {
			return s.DeleteKey(ctx, account, "deleted", nil, note("DeleteKey"))
		},
			func(t *tester) bool {
				_, err := t.store.KeyByHash(t.Context(), hashOf(account, "deleted"))
				return !found(err, apierr.ErrNotFound)(t)
			})

		id := func(name string) string { return name + " of " + account }
		t.createWebhooks(newWebhook(account, id("kept")), newWebhook(account, id("deleted")))
		webhook := func(t *tester, name string) bool {
			_, err := t.store.WebhookByID(t.Context(), account, id(name))
			return found(err, apierr.ErrNotFound)(t)
		}
		add("CreateWebhook", func(ctx context.Context, s store.Store) error {
			return s.CreateWebhook(ctx, newWebhook(account, id("new")), driver.CreateOptions{AuditEntry: note("CreateWebhook")})
		}, func(t *tester) bool { return webhook(t, "new") })
		add("UpdateWebhook", func(ctx context.Context, s store.Store) error {
			_, err := s.UpdateWebhook(ctx, account, id("kept"), func(w *driver.Webhook, entry *audit.Entry) error {
				*entry = note("UpdateWebhook")
				return turnOff(w, nil)
			})
			return err
		}, func(t *tester) bool { return !t.webhook(account, id("kept")).Active })
		add("DeleteWebhook", func(ctx context.Context, s store.Store) error {
			return s.DeleteWebhook(ctx, account, id("deleted"), nil, note("DeleteWebhook"))
		}, func(t *tester) bool { return !webhook(t, "deleted") })

		event := func(t *tester, eventID string) bool {
			_, err := t.store.EventDeliveries(t.Context(), account, eventID)
			return found(err, apierr.ErrNotFound)(t)
		}
		add("Enqueue", func(ctx context.Context, s store.Store) error {
			_, err := s.Enqueue(ctx, newEvent(account, "new"))
			return err
		}, func(t *tester) bool { return event(t, "new") })
		add("UpdateAlert", func(ctx context.Context, s store.Store) error {
			_, err := s.UpdateAlert(ctx, account, "series 1", func(step *driver.AlertStep) error {
				step.Events = []driver.AlertEvent{{EncodedEvent: newEvent(account, "alert")}}
				return keepState("stored")(step)
			})
			return err
		}, func(t *tester) bool {
			stored := t.alert(account, "series 1") == "stored"
			if stored != event(t, "alert") {
				t.Errorf("%s: alert state stored = %v, its event stored = %v", account, stored, !stored)
			}
			return stored
		})
		add("EnqueueOnce", func(ctx context.Context, s store.Store) error {
			_, err := s.EnqueueOnce(ctx, newEvent(account, "notice"), []driver.DedupKey{newDedupKey("notice")})
			return err
		}, func(t *tester) bool {
			fresh, err := t.store.UnseenKeys(t.Context(), account, []driver.DedupKey{newDedupKey("notice")})
			t.must(err)
			if known := len(fresh) == 0; known != event(t, "notice") {
				t.Errorf("%s: deduplication key stored = %v, its event stored = %v", account, known, !known)
			}
			return len(fresh) == 0
		})
		add("CreateRecovery", func(ctx context.Context, s store.Store) error {
			return s.CreateRecovery(ctx, newRecovery(account, id("kept"), id("recovery"), driver.Dead), note("CreateRecovery"))
		}, func(t *tester) bool {
			_, err := t.store.RecoveryByID(t.Context(), account, id("recovery"))
			return found(err, apierr.ErrNotFound)(t)
		})

		settled := numbered("settled", i)
		t.createWebhooks(newWebhook(settled, settled))
		t.enqueue(newEvent(settled, "event"), 1)
		task := t.claimAll(1)[0]
		add("Settle", func(ctx context.Context, s store.Store) error {
			results := []driver.AttemptResult{result(task.Ref, 1, driver.Deliver)}
			got, err := s.(driver.Deliveries).Settle(ctx, results, []driver.HealthChange{{
				Account: settled, WebhookID: settled, Version: 1,
				Health: driver.WebhookHealth{Active: true, ProvenAt: some}, AuditEntries: []audit.Entry{note("Settle")},
			}})
			if err == nil && len(got.Stale)+len(got.Conflicts) > 0 {
				return errStale
			}
			return err
		}, func(t *tester) bool {
			is := t.delivery(settled, "event").State == driver.Delivered
			wantSame(t, "whether health and result agree", !t.webhook(settled, settled).ProvenAt.IsZero(), is)
			return is
		})
	}
	return list
}

// undone reports whether err guarantees that the step changed nothing.
func undone(err error) bool {
	if errors.Is(err, auth.ErrInterrupted) {
		return false
	}
	for _, sentinel := range []error{context.Canceled, context.DeadlineExceeded, store.ErrClosed, store.ErrReadOnly, auth.ErrUnavailable} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// check compares the errors of the steps with the contents of the store, and counts the steps that
// are done, not done, and of unknown outcome.
func (t *tester) check(list []*cut) (done, not, unknown int) {
	t.Helper()
	for _, c := range list {
		switch is := c.done(t); {
		case c.err == nil && !is:
			t.Errorf("%s returned nil but was not done", c.name)
		case undone(c.err) && is:
			t.Errorf("%s returned %v but was done", c.name, c.err)
		case c.err == nil:
			done++
		case undone(c.err):
			not++
		default:
			unknown++
		}
	}
	return done, not, unknown
}

// cutShort starts half of the steps at once and the others at random times within the given
// duration. Most of their contexts end within that duration, too. cutShort also calls meanwhile at
// a random time in it, and returns when all steps have returned.
func (t *tester) cutShort(list []*cut, within time.Duration, meanwhile func()) {
	var group sync.WaitGroup
	for i, c := range list {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group.Go(func() {
			if i%2 > 0 {
				time.Sleep(rand.N(within))
			}
			if i%4 > 0 {
				time.AfterFunc(rand.N(within), cancel)
			}
			c.err = c.do(ctx, t.store)
		})
	}
	time.Sleep(rand.N(within))
	meanwhile()
	group.Wait()
}

// cutting tests what happens when a step is interrupted.
func cutting(run runner) {
	run("contexts that end at any point of a step", func(t *tester) {
		list := t.cuts(12)
		began := time.Now()
		t.createKeys(newKey("acct", "key"))
		step := time.Since(began)
		t.cutShort(list, min(max(20*step, time.Millisecond), time.Second), func() {})
		done, not, unknown := t.check(list)
		t.Logf("%d steps done, %d not, %d unknown", done, not, unknown)
		if unknown > 0 {
			for _, c := range list {
				if c.err != nil && !undone(c.err) {
					t.Errorf("%s = %v", c.name, c.err)
				}
			}
		}
		for _, c := range list { // an undone step can be repeated
			if c.err != nil {
				if err := c.do(t.Context(), t.store); err != nil || !c.done(t) {
					t.Errorf("%s again = %v", c.name, err)
				}
			}
		}
	})

	run("a call that waits for another call's callback returns when its context ends", func(t *tester) {
		t.createKeys(newKey("acct", "held"))
		under, release, updated := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			begun := sync.OnceFunc(func() { close(under) }) // a store may run the callback again
			_, err := t.store.UpdateKey(t.Context(), "acct", "held", func(key *driver.Key, _ *audit.Entry) error {
				begun()
				<-release
				return rename(key, nil)
			})
			updated <- err
		}()
		<-under
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		created := make(chan error, 1)
		go func() { created <- t.store.CreateKey(ctx, newKey("acct", "waits"), driver.CreateOptions{}) }()
		var err error
		select {
		case err = <-created:
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("CreateKey = %v", err)
			}
		case <-time.After(eventTimeout):
			t.Error("CreateKey waits for the callback after its context has ended")
		}
		close(release)
		t.must(<-updated)
		if _, found := t.store.KeyByID(t.Context(), "acct", "waits"); (err == nil) != (found == nil) {
			t.Errorf("CreateKey = %v, but KeyByID then = %v", err, found)
		}
		wantSame(t, "Name", t.key("acct", "held").Name, "renamed")
	})

	run("Close at any point of a step", func(t *tester) {
		list := t.cuts(4)
		t.cutShort(list, 5*time.Millisecond, func() { t.must(t.store.Close()) })
		for _, c := range list {
			if c.err != nil && !undone(c.err) {
				t.Errorf("%s = %v, want nil, the context's error or ErrClosed", c.name, c.err)
			}
		}
	})

	run("a callback that ends its goroutine changes nothing and blocks nothing", func(t *tester) {
		t.createKeys(newKey("acct", "key"))
		webhook := newWebhook("acct", "webhook")
		t.createWebhooks(webhook)
		for name, call := range map[string]func() error{
			"UpdateKey": func() error {
				_, err := t.store.UpdateKey(t.Context(), "acct", "key", func(key *driver.Key, _ *audit.Entry) error { key.Name = "changed"; runtime.Goexit(); return nil })
				return err
			},
			"DeleteKey": func() error {
				return t.store.DeleteKey(t.Context(), "acct", "key", func(driver.Key) error { runtime.Goexit(); return nil }, audit.Entry{})
			},
			"UpdateWebhook": func() error {
				_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error { w.URL = "changed"; runtime.Goexit(); return nil })
				return err
			},
			"DeleteWebhook": func() error {
				return t.store.DeleteWebhook(t.Context(), "acct", "webhook", func(driver.Webhook) error { runtime.Goexit(); return nil }, audit.Entry{})
			},
			"UpdateAlert": func() error {
				_, err := t.store.UpdateAlert(t.Context(), "acct", "series 1", func(step *driver.AlertStep) error { step.State = []byte("changed"); runtime.Goexit(); return nil })
				return err
			},
			"UpdateScan": func() error {
				return t.store.UpdateScan(t.Context(), func([]byte) ([]byte, error) { runtime.Goexit(); return []byte("changed"), nil })
			},
		} {
			others := make([]error, 8)
			inParallel(len(others)+1, func(i int) {
				if i < len(others) {
					_, others[i] = t.store.Enqueue(t.Context(), newEvent("acct", numbered(name, i)))
					return
				}
				if err := call(); err == nil {
					t.Errorf("%s = nil", name)
				}
			})
			for _, err := range others {
				if err != nil {
					t.Errorf("step concurrent with %s: %v", name, err)
				}
			}
		}
		wantSame(t, "KeyByID", t.key("acct", "key"), newKey("acct", "key"))
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), webhook)
		wantSame(t, "State", t.alert("acct", "series 1"), "")
		wantSame(t, "the scan's state", t.scanState(), "")
		t.claimAll(6 * 8)
	})
}

// durableCuts cuts steps short by ending their contexts and closing the store. It tests that after
// a restart acknowledged steps are complete and failed steps have left nothing.
func durableCuts(reopened func(name string, before, after func(*tester))) {
	for i, within := range []time.Duration{time.Millisecond, 4 * time.Millisecond, 16 * time.Millisecond, 64 * time.Millisecond} {
		var list []*cut
		reopened(fmt.Sprintf("steps interrupted by contexts and Close, %d", i), func(t *tester) {
			list = t.cuts(12)
			t.cutShort(list, within, func() { t.must(t.store.Close()) })
		}, func(t *tester) {
			done, not, unknown := t.check(list)
			t.Logf("%d steps done, %d not, %d unknown", done, not, unknown)
		})
	}
}
