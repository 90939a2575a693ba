package storetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// A records tests the list and update methods for one kind of record. Keys and webhooks share these
// tests, because their contracts are the same.
type records[R any] struct {
	make   func(account, id string) R
	id     func(*R) string
	text   func(*R) *string // a field that may hold any string
	create func(*tester, ...R)
	update func(t *tester, account, id string, change func(*R, *audit.Entry) error) (R, error)
	remove func(t *tester, account, id string) error
	list   func(t *tester, account, after string, limit int) ([]R, error)
}

var keyRecords = records[driver.Key]{
	make:   rotatedKey,
	id:     func(key *driver.Key) string { return key.ID },
	text:   func(key *driver.Key) *string { return &key.Name },
	create: (*tester).createKeys,
	update: func(t *tester, account, id string, change func(*driver.Key, *audit.Entry) error) (driver.Key, error) {
		return t.store.UpdateKey(t.Context(), account, id, change)
	},
	remove: func(t *tester, account, id string) error {
		return t.store.DeleteKey(t.Context(), account, id, nil, audit.Entry{})
	},
	list: func(t *tester, account, after string, limit int) ([]driver.Key, error) {
		return t.store.ListKeys(t.Context(), account, driver.ListQuery{After: after, Limit: limit})
	},
}

var webhookRecords = records[driver.Webhook]{
	make:   newWebhook,
	id:     func(w *driver.Webhook) string { return w.ID },
	text:   func(w *driver.Webhook) *string { return &w.URL },
	create: (*tester).createWebhooks,
	update: func(t *tester, account, id string, change func(*driver.Webhook, *audit.Entry) error) (driver.Webhook, error) {
		return t.store.UpdateWebhook(t.Context(), account, id, change)
	},
	remove: func(t *tester, account, id string) error {
		return t.store.DeleteWebhook(t.Context(), account, id, nil, audit.Entry{})
	},
	list: func(t *tester, account, after string, limit int) ([]driver.Webhook, error) {
		return t.store.ListWebhooks(t.Context(), account, driver.ListQuery{After: after, Limit: limit})
	},
}

func (r records[R]) listed(t *tester, account, after string, limit int) []R {
	t.Helper()
	list, err := r.list(t, account, after, limit)
	t.must(err)
	return list
}

// lists tests the method that lists records.
func (r records[R]) lists(run runner) {
	// pages returns all records, read in pages of limit records.
	pages := func(t *tester, account string, limit, n int) (got []R) {
		t.Helper()
		for after := ""; ; {
			page := r.listed(t, account, after, limit)
			if len(page) != min(limit, n-len(got)) {
				t.Fatalf("page of at most %d after %d of %d has %d records", limit, len(got), n, len(page))
			}
			if len(page) == 0 {
				return got
			}
			got = append(got, page...)
			after = r.id(&page[len(page)-1])
		}
	}

	run("lists by descending ID, in pages of any size", func(t *tester) {
		const n = 7
		want := make([]R, n)
		for _, i := range []int{3, 0, 6, 1, 5, 2, 4} { // not in the order of IDs
			want[n-1-i] = r.make("ab", numbered("id", i))
			r.create(t, want[n-1-i])
			for _, near := range []string{"a", "abc", "ab/", "ab:", "AB", "b"} {
				r.create(t, r.make(near, numbered("a "+near, i)), r.make(near, numbered("z "+near, i)))
			}
		}
		for limit := 1; limit <= n+1; limit++ {
			wantSame(t, "all pages", pages(t, "ab", limit, n), want)
		}
	})

	run("orders IDs byte by byte", func(t *tester) {
		ids := slices.Clone(oddStrings)
		for _, id := range ids {
			r.create(t, r.make("acct", id))
		}
		slices.Sort(ids)
		slices.Reverse(ids)
		for _, limit := range []int{4, 1000} {
			var got []string
			for _, record := range pages(t, "acct", limit, len(ids)) {
				got = append(got, r.id(&record))
			}
			wantSame(t, "ids", got, ids)
		}
	})

	run("returns an empty list past the end", func(t *tester) {
		wantSame(t, "list of an account without records", r.listed(t, "acct", "", 9), nil)
		r.create(t, r.make("acct", "id"), r.make("acc", "a"), r.make("acctx", "b"))
		wantSame(t, "list after the last ID", r.listed(t, "acct", "id", 9), nil)
		wantSame(t, "list after a lower ID", r.listed(t, "acct", "a", 9), nil)
	})

	run("accepts an unused ID as the start of a page", func(t *tester) {
		a, c, e := r.make("acct", "a"), r.make("acct", "c"), r.make("acct", "e")
		r.create(t, a, c, e, r.make("acct", "b"), r.make("acct", "d"), r.make("acct", "f"))
		for _, id := range []string{"b", "d", "f"} {
			t.must(r.remove(t, "acct", id))
		}
		wantSame(t, "after f", r.listed(t, "acct", "f", 9), []R{e, c, a})
		wantSame(t, "after d", r.listed(t, "acct", "d", 1), []R{c})
		wantSame(t, "after b", r.listed(t, "acct", "b", 9), []R{a})
		wantSame(t, "after an ID above all", r.listed(t, "acct", "zzz", 2), []R{e, c})
		wantSame(t, "after an unused ID", r.listed(t, "acct", "c5", 9), []R{c, a})
	})
}

// updates tests that concurrent updates are not lost.
func (r records[R]) updates(run runner) {
	run("no other change happens between reading and storing", func(t *tester) {
		const goroutines, each = 8, 20
		record := r.make("acct", "id")
		*r.text(&record) = "0"
		r.create(t, record)
		inParallel(goroutines, func(int) {
			for range each {
				_, err := r.update(t, "acct", "id", func(record *R, _ *audit.Entry) error {
					n, err := strconv.Atoi(*r.text(record))
					time.Sleep(time.Microsecond) // gives the other goroutines time to run
					*r.text(record) = strconv.Itoa(n + 1)
					return err
				})
				t.wantError("update", err, nil)
			}
		})
		record = r.listed(t, "acct", "", 1)[0]
		wantSame(t, "count", *r.text(&record), strconv.Itoa(goroutines*each))
	})
}
