package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// changesOf removes and returns the recorded changes, one line each: the kind, followed by the
// webhook id and event id of each element. It omits a line that equals the previous line, and marks
// elements whose shard is not that of the webhook's account.
func changesOf(t *testing.T, schema string) (lines []string) {
	t.Helper()
	rows, err := pool(t).Query(t.Context(), strings.ReplaceAll(`
		with taken as (delete from S.changes returning added, kind, shards, webhooks, events)
		select kind::text, array(
			select coalesce(w.id, 'all') || ':' || coalesce(e.id, 'none') ||
				case when shard = S.shard_of(coalesce(w.account, e.account)) then '' else ' of another shard' end
			from unnest(shards, webhooks, events) with ordinality as u (shard, webhook, event, place)
			left join (select no, id, account from S.webhooks union all select no, id, account from S.past_webhooks) w on w.no = webhook
			left join S.event_log e on e.event = u.event order by place)
		from taken order by added`, "S", quoted(schema)))
	if err != nil {
		t.Fatal(err)
	}
	var kind string
	var list []string
	if _, err := pgx.ForEachRow(rows, []any{&kind, &list}, func() error {
		lines = append(lines, kind+" "+strings.Join(list, " "))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return slices.Compact(lines)
}

func wantChanges(t *testing.T, schema string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, changesOf(t, schema)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// Each change of pending deliveries or of a webhook is recorded once for the owners, in the
// transaction that makes the change.
func TestChangesAreRecorded(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	event := func(id string) driver.EncodedEvent {
		return driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte("{}")}
	}
	enqueue := func(id string) {
		t.Helper()
		_, err := s.Enqueue(t.Context(), event(id))
		must(err)
	}
	enqueue("to none")
	for _, id := range []string{"a", "b"} {
		must(s.CreateWebhook(t.Context(), newWebhook("acct", id), driver.CreateOptions{}))
	}
	wantChanges(t, name)
	enqueue("first")
	enqueue("first")
	wantChanges(t, name, "0 a:first b:first")

	undo := errors.New("undone")
	for _, end := range []error{nil, undo} {
		err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
			for _, of := range []string{"one", "two"} {
				if _, err := s.EnqueueTx(t.Context(), tx, event(fmt.Sprint(of, " ", end))); err != nil {
					return err
				}
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		s.Published("acct")
	}
	wantChanges(t, name, "0 a:one <nil> b:one <nil>", "0 a:two <nil> b:two <nil>")
	_, err := s.EnqueueOnce(t.Context(), event("once"), []driver.DedupKey{{Key: "key", Until: time.Now().Add(time.Hour)}})
	must(err)
	wantChanges(t, name, "0 a:once b:once")

	const n = 300
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if _, err := s.Enqueue(t.Context(), event(fmt.Sprintf("many_%03d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	lines := changesOf(t, name)
	if got := strings.Count(strings.Join(lines, " "), "a:many_"); got != n || len(lines) > n/3 {
		t.Errorf("%d events are noted in %d rows, want %d in fewer", got, len(lines), n)
	}

	must(s.Probe(t.Context(), "acct", "a"))
	wantChanges(t, name, "3 a:none")
	if err := s.Probe(t.Context(), "other", "a"); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("Probe of another account's = %v", err)
	}
	_, err = s.UpdateWebhook(t.Context(), "acct", "a", func(w *driver.Webhook, _ *audit.Entry) error { w.Active = false; return nil })
	must(err)
	wantChanges(t, name, "2 a:none")
	enqueue("to b, skipped for a")
	wantChanges(t, name, "0 b:to b, skipped for a")
	must(s.Redeliver(t.Context(), "acct", "a", "to b, skipped for a", audit.Entry{})) // the delivery is settled
	must(s.Redeliver(t.Context(), "acct", "b", "first", audit.Entry{}))               // the delivery is pending
	wantChanges(t, name, "1 a:to b, skipped for a", "4 b:first")
	must(s.DeleteWebhook(t.Context(), "acct", "b", nil, audit.Entry{}))
	wantChanges(t, name, "2 b:none")
	must(s.CreateWebhook(t.Context(), newWebhook("acct", "c"), driver.CreateOptions{}))
	if _, err := postgres.HoldAll(t.Context(), pool(t), option); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, name, "2 a:none c:none")
	if err := s.DeleteWebhook(t.Context(), "acct", "a", func(driver.Webhook) error { return undo }, audit.Entry{}); !errors.Is(err, undo) {
		t.Fatal(err)
	}
	wantChanges(t, name)
}

// A node that loads a shard delivers redelivered events first, and recovered events last.
func TestLoad_RedeliveredAndRecovered_ComeFirstAndLast(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(i), Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
	}
	order := func() (ids string) {
		t.Helper()
		err := pool(t).QueryRow(t.Context(), strings.ReplaceAll(`
			select string_agg(e.id, ' ' order by recovered, due, p.event) from S.pending p join S.event_log e using (event)`, "S", quoted(name))).Scan(&ids)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	in(t, name, `update pending set due = now() + interval '1 hour', recovered = true where event = (select event from event_log where id = '3')`)
	for _, of := range [][2]string{{"4", "4 0 1 2 3"}, {"2", "2 4 0 1 3"}, {"3", "3 2 4 0 1"}, {"3", "3 2 4 0 1"}} {
		if err := s.Redeliver(t.Context(), "acct", "a", of[0], audit.Entry{}); err != nil {
			t.Fatal(err)
		}
		if got := order(); got != of[1] {
			t.Errorf("once %s was redelivered the order is %s, want %s", of[0], got, of[1])
		}
	}
}

// Purge ends expired pending deliveries in all shards, regardless of their owners.
func TestPurge_ShardsOfOtherNodes_AreIncluded(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	const theirs, free = "theirs", "free"
	for _, account := range []string{theirs, free} {
		if err := s.CreateWebhook(t.Context(), newWebhook(account, account), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: account, Account: account, Type: alerts.TypeBalanceLow, Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	in(t, name, `
		insert into nodes (node) values (7);
		update shard_owners set node = 7 where shard = shard_of('`+theirs+`');
		update shard_owners set node = 8 where shard = shard_of('`+free+`')`) // a dead node
	changesOf(t, name)
	soon := time.Now().Add(time.Minute)
	state := func(account string) (state driver.DeliveryState) {
		t.Helper()
		list, err := s.EventDeliveries(t.Context(), account, account)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			state = list[0].State
		}
		return state
	}
	if _, err := s.Purge(t.Context(), driver.Purge{Payloads: soon, Attempts: time.Unix(0, 0), EventIDs: time.Unix(0, 0), Limit: 100}); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, name)
	for _, account := range []string{theirs, free} {
		if got := state(account); got != driver.Dead {
			t.Errorf("the delivery of %s is %q, want dead", account, got)
		}
	}
}

// The owner of a shard claims deliveries that were redelivered on another node, and does not claim
// deliveries that another node has purged.
func TestOwner_AnotherNodeRedeliversOrPurges_Follows(t *testing.T) {
	option := inSchema(t)
	owner, other := open(t, option, postgres.PollEvery(time.Millisecond)), open(t, option) // each claim of the owner reads the feed
	if err := owner.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := other.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(i), Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(want string) storetest.Task {
		t.Helper()
		var found []storetest.Task
		eventually(t, "the owner claims "+want, func() bool {
			for _, task := range claimed(t, owner) {
				if task.Event.ID == want {
					found = append(found, task)
				} else {
					storetest.WorkerOf(owner).Postpone(task)
				}
			}
			return len(found) > 0
		})
		if len(found) != 1 {
			t.Fatalf("claimed %s %d times, want once", want, len(found))
		}
		return found[0]
	}
	redeliver := func(id string) {
		t.Helper()
		if err := other.Redeliver(t.Context(), "acct", "a", id, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	settleAs(t, owner, claim("0"), driver.Deliver)
	redeliver("3") // the delivery is pending
	redeliver("0") // the delivery is settled
	again := claim("0")
	if again.Attempt != 2 || again.Before != 1 {
		t.Errorf("attempt %d after %d, want 2 after 1", again.Attempt, again.Before)
	}
	redeliver("0") // the delivery is being attempted

	purge := func() {
		t.Helper()
		if _, err := other.Purge(t.Context(), driver.Purge{Payloads: time.Now().Add(time.Minute), Attempts: time.Unix(0, 0), EventIDs: time.Unix(0, 0), Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	states := func() (list string) {
		t.Helper()
		page, err := other.ListDeliveries(t.Context(), "acct", "a", driver.DeliveryQuery{Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Deliveries {
			list += " " + d.EventID + " " + string(d.State)
		}
		return list
	}
	purge()
	if got, want := states(), " 3 dead 2 dead 1 dead 0 dead"; got != want {
		t.Errorf("deliveries are%s after the purge, want%s", got, want)
	}
	if n := len(claimed(t, owner)); n > 0 {
		t.Errorf("claimed %d of what was purged", n)
	}
}
