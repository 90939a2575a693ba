package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// Changes that all nodes have read are removed, but nodes must miss no change of a transaction that
// is still open.
func TestChangesAreTrimmed(t *testing.T) {
	name, option := migratedSchema(t)
	nodes := []*postgres.Store{open(t, option), open(t, option)}
	endpoints(t, nodes[0], 20)
	delivered := make(map[string]int)
	deliver := func() {
		t.Helper()
		for _, s := range nodes {
			for _, task := range claimed(t, s) {
				delivered[task.Event.ID]++
				settleAs(t, s, task, driver.Deliver)
			}
		}
	}
	publish := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := nodes[i%2].Enqueue(t.Context(), driver.EncodedEvent{
				ID: fmt.Sprint(i), Account: fmt.Sprintf("acct_wh_%06d", i%20), Type: alerts.TypeBalanceLow, Body: []byte("{}"),
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := pool(t).QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	changes := `select count(*) from ` + quoted(name) + `.changes`
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].EnqueueTx(t.Context(), tx, driver.EncodedEvent{ID: "open", Account: "acct_wh_000003", Type: alerts.TypeBalanceLow, Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	publish(0, 300)
	if n := count(changes); n < 300 {
		t.Fatalf("%d changes, want 300", n)
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		deliver() // must trim nothing after the open transaction
	}
	if n := count(changes); n < 300 {
		t.Errorf("%d changes beside an open transaction, want 300", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "changes are removed", func() bool {
		deliver()
		return count(changes) == 0
	})
	publish(300, 320)
	eventually(t, "all are delivered", func() bool {
		deliver()
		return len(delivered) == 321
	})
	for id, n := range delivered {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
	if mark, now := count(`select event from `+quoted(name)+`.marks where name = 'changes'`), count(`select pg_current_xact_id()::text::bigint`); mark == 0 || mark > now {
		t.Errorf("the mark is %d, now is %d", mark, now)
	}
}

// A dump restored on another server may contain changes with transaction numbers that this server
// reaches only much later. Such changes must do no harm.
func TestChanges_OfAnotherServer_AreHarmless(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	endpoints(t, s, 4)
	for i := range 40 {
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{
			ID: fmt.Sprint(i), Account: fmt.Sprintf("acct_wh_%06d", i%4), Type: alerts.TypeBalanceLow, Body: []byte("{}"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	in(t, name, `update changes set added = added + 1000000000000; update marks set event = 1000000000000 where name = 'changes';
		insert into nodes (node) values (5); insert into heartbeats (node, until, seen) values (5, now() - interval '1 day', 1000000000000); update shard_owners set node = 5`)
	if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "later", Account: "acct_wh_000000", Type: alerts.TypeBalanceLow, Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	var left, mark int
	eventually(t, "all are delivered, and changes are removed", func() bool {
		for _, task := range claimed(t, s) {
			seen[task.Event.ID]++
			settleAs(t, s, task, driver.Deliver)
		}
		if err := pool(t).QueryRow(t.Context(), `select (select count(*) from `+quoted(name)+`.changes), event from `+quoted(name)+`.marks where name = 'changes'`).Scan(&left, &mark); err != nil {
			t.Fatal(err)
		}
		return len(seen) == 41 && left == 0
	})
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
	if mark >= 1000000000000 {
		t.Errorf("the mark is %d", mark)
	}
}
