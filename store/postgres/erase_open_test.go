package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// An erasure ends only after all transactions that published before it have ended, and removes the
// events that they stored. This includes an erasure that is interrupted and continued on another
// node.
func TestErase_PublicationOpen_ReceiptComesAfterItsEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepared bool
		end      string
		events   int
	}{
		"committed":              {false, "commit", 1},
		"rolled back":            {false, "rollback", 0},
		"prepared and committed": {true, "commit prepared 'erased'", 1},
	} {
		t.Run(name, func(t *testing.T) {
			option := inSchema(t)
			s, other := open(t, option), open(t, option)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, account := range []string{"acct", "other"} {
				must(s.CreateWebhook(t.Context(), newWebhook(account, account), driver.CreateOptions{}))
			}
			begin := func(account, id string) pgx.Tx {
				t.Helper()
				tx, err := pool(t).Begin(t.Context())
				must(err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				_, err = s.EnqueueTx(t.Context(), tx, driver.EncodedEvent{ID: id, Account: account, Type: alerts.TypeBalanceLow, Body: []byte("SECRET")})
				must(err)
				return tx
			}
			tx := begin("acct", "late")
			erase := func(ctx context.Context, node store.Eraser) (erased store.Receipt, more bool, err error) {
				return node.EraseAccount(ctx, "acct", 100)
			}
			var steps []bool
			for range 4 {
				_, more, err := erase(t.Context(), s)
				must(err)
				steps = append(steps, more)
			}
			if test.prepared {
				if len(texts(t, `select name from pg_settings where name = $1 and setting = '0'`, "max_prepared_transactions")) > 0 {
					t.Skip("the server has no prepared transactions")
				}
				_, err := tx.Exec(t.Context(), `prepare transaction 'erased'`)
				must(err)
				defer func() { _, _ = pool(t).Exec(context.Background(), `rollback prepared 'erased'`) }()
				for range 2 {
					_, more, err := erase(t.Context(), other)
					must(err)
					steps = append(steps, more)
				}
			}
			// Other accounts can publish, and the erasure does not wait for their open
			// transactions.
			later := begin("other", "open")
			_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "beside", Account: "other", Type: alerts.TypeBalanceLow})
			must(err)
			if _, err := s.Enqueue(t.Context(), encoded("refused")); !errors.Is(err, auth.ErrErasing) {
				t.Errorf("Enqueue while an erasure waits = %v, want ErrErasing", err)
			}
			if _, err := s.EnqueueTx(t.Context(), later, encoded("refused")); !errors.Is(err, auth.ErrErasing) {
				t.Errorf("EnqueueTx while an erasure waits = %v, want ErrErasing", err)
			}
			cut, cancel := context.WithCancel(t.Context())
			cancel()
			if _, _, err := erase(cut, s); !errors.Is(err, context.Canceled) {
				t.Errorf("EraseAccount with a context that has ended = %v", err)
			}
			for i, more := range steps {
				if !more {
					t.Fatalf("step %d reports the account gone while the publication is open", i)
				}
			}

			if test.prepared {
				_, err = pool(t).Exec(t.Context(), test.end)
			} else {
				_, err = tx.Exec(t.Context(), test.end)
			}
			must(err)
			var erased store.Receipt
			for i, more := 0, true; more; i++ {
				if erased, more, err = erase(t.Context(), other); err != nil || i > 9 {
					t.Fatalf("step %d after the end of the publication: %v", i, err)
				}
			}
			if diff := cmp.Diff(store.Receipt{Webhooks: 1, Events: test.events, Deliveries: test.events}, erased, cmp.FilterPath(func(p cmp.Path) bool {
				return p.String() == "Deliveries"
			}, cmp.Ignore())); diff != "" {
				t.Errorf("receipt (-want +got):\n%s", diff)
			}
			if _, _, err := other.EventByID(t.Context(), "acct", "late"); !errors.Is(err, apierr.ErrNotFound) {
				t.Errorf("EventByID after the erasure = %v, want ErrNotFound", err)
			}
			for _, table := range []string{"event_log", "event_ids"} {
				if found := texts(t, fmt.Sprintf(`select id from %s.%s where account = $1`, quoted(postgres.SchemaOf(option)), table), "acct"); len(found) > 0 {
					t.Errorf("%s has %q of the account", table, found)
				}
			}
			must(later.Rollback(t.Context()))
		})
	}
}

// Without open publications an erasure takes no extra steps.
func TestErase_NothingOpen_WaitsForNothing(t *testing.T) {
	s := open(t, inSchema(t))
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "a"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for more := true; more; steps++ {
		var err error
		if _, more, err = s.EraseAccount(t.Context(), "acct", 100); err != nil {
			t.Fatal(err)
		}
	}
	if steps != 2 {
		t.Errorf("%d steps, want 2", steps)
	}
}
