package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// A wire connects a node to the server. Once it is cut, nothing passes and the server does not
// notice, as if the node had lost power or was suspended.
type wire struct {
	mu    sync.Mutex
	sent  int // number of flights: data that the node sends before it waits for an answer
	cutAt int // if above 0, the number of the last flight that passes; its answer does not pass
	isCut bool
	up    int // if above 0, maximum bytes of a flight; with more, the connection goes silent
	down  int // like up, for the answer
	pace  int // if above 0, the maximum bytes of answers per second and connection
	ends  []net.Conn
}

// paces sets the maximum bytes of answers per second and connection; 0 means no limit.
func (w *wire) paces(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace = bytes
}

// delay returns how long an answer of n bytes takes.
func (w *wire) delay(n int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(w.pace)
}

// close closes all connections.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.ends {
		_ = conn.Close()
	}
}

// narrows sets the maximum bytes of a flight and of its answer; 0 means no limit.
func (w *wire) narrows(up, down int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.down = up, down
}

// passes reports whether a flight of up bytes and an answer of down bytes pass.
func (w *wire) passes(up, down int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (w.up == 0 || up <= int64(w.up)) && (w.down == 0 || down <= int64(w.down))
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil, errors.New("the wire is cut")
	}
	server, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	node, far := net.Pipe()
	w.ends = append(w.ends, server, far)
	var up, down atomic.Int64 // bytes of the last flight, and of its answer
	go func() {
		buffer := make([]byte, 1<<20)
		for {
			n, err := far.Read(buffer)
			down.Store(0)
			if err == nil && !w.passes(up.Add(int64(n)), 0) {
				return
			}
			if err == nil && w.flies() {
				_, err = server.Write(buffer[:n])
			}
			if err != nil {
				if !w.silent() {
					_ = server.Close()
				}
				return
			}
		}
	}()
	go func() {
		buffer := make([]byte, 16<<10)
		for {
			n, err := server.Read(buffer)
			up.Store(0)
			if w.silent() || !w.passes(0, down.Add(int64(n))) {
				return // from now on nothing reads the server's answers
			}
			if err == nil {
				time.Sleep(w.delay(n))
				_, err = far.Write(buffer[:n])
			}
			if err != nil {
				_ = far.Close()
				return
			}
		}
	}()
	return node, nil
}

// flies counts a flight, and reports whether it passes.
func (w *wire) flies() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return false
	}
	w.sent++
	w.isCut = w.sent == w.cutAt
	return true
}

func (w *wire) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isCut
}

// cutAfter cuts the wire after the given number of further flights; 0 means never.
func (w *wire) cutAfter(flights int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.cutAt = 0, flights
}

// mend lets new connections pass.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut, w.cutAt = false, 0
}

func (w *wire) flights() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// wired returns a node that connects through a wire, with the application_name name.
func wired(t *testing.T, name string, options ...postgres.Option) (*postgres.Store, *wire) {
	t.Helper()
	return wiredBy(t, name, 2, options...)
}

// wiredBy is like wired, with the given maximum number of connections.
func wiredBy(t *testing.T, name string, connections int32, options ...postgres.Option) (*postgres.Store, *wire) {
	t.Helper()
	w := &wire{}
	config := pool(t).Config()
	config.MaxConns, config.ConnConfig.DialFunc = connections, w.dial
	config.ConnConfig.RuntimeParams["application_name"] = name
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := postgres.New(t.Context(), p, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.close()
		_ = s.Close()
		p.Close()
	})
	return s, w
}

// testAuditEntry returns an audit entry of the account.
func testAuditEntry(account string) audit.Entry {
	return audit.Entry{ID: "ntc", Account: account, At: time.Now(), Action: audit.KeyChanged, Target: audit.Target{Kind: audit.TargetKey, ID: account}, Pending: true}
}

// transactions are the store's steps that consist of several statements. Each step acts on an
// account named of, which has a webhook, a key, a delivered event and, if needed, an unfinished
// recovery, all with the same name.
var transactions = map[string]func(ctx context.Context, s *postgres.Store, of string) error{
	"CreateKey": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.CreateKey(ctx, testKey(of, "key_2", 2), driver.CreateOptions{MaxCount: 9, IdempotencyKey: "again", IdempotencyTTL: time.Hour, AuditEntry: testAuditEntry(of)})
	},
	"UpdateKey": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.UpdateKey(ctx, of, of, func(k *driver.Key, n *audit.Entry) error { k.Name, *n = "new", testAuditEntry(of); return nil })
		return err
	},
	"DeleteKey": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.DeleteKey(ctx, of, of, func(driver.Key) error { return nil }, testAuditEntry(of))
	},
	"CreateWebhook": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.CreateWebhook(ctx, newWebhook(of, of+"2"), driver.CreateOptions{MaxCount: 9, IdempotencyKey: "again", IdempotencyTTL: time.Hour})
	},
	"UpdateWebhook": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.UpdateWebhook(ctx, of, of, func(w *driver.Webhook, n *audit.Entry) error {
			w.URL, *n = "https://example.com/new", testAuditEntry(of)
			return nil
		})
		return err
	},
	"DeleteWebhook": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.DeleteWebhook(ctx, of, of, func(driver.Webhook) error { return nil }, testAuditEntry(of))
	},
	"UpdateAlert": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.UpdateAlert(ctx, of, "series", func(step *driver.AlertStep) error {
			step.State = []byte("state")
			return nil
		})
		return err
	},
	"UpdateScan": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.UpdateScan(ctx, func([]byte) ([]byte, error) { return []byte(of), nil })
	},
	"EnqueueOnce": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.EnqueueOnce(ctx, driver.EncodedEvent{ID: of + "2", Account: of, Type: alerts.TypeBalanceLow},
			[]driver.DedupKey{{Key: "notice", Until: time.Now().Add(time.Hour)}})
		return err
	},
	"Redeliver": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.Redeliver(ctx, of, of, of, testAuditEntry(of))
	},
	"CreateRecovery": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.CreateRecovery(ctx, driver.Recovery{ID: of + "2", Account: of, WebhookID: of, States: []driver.DeliveryState{driver.Delivered}, CreatedAt: time.Now()}, testAuditEntry(of))
	},
	"AdvanceRecovery": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.AdvanceRecovery(ctx, 10)
		return err
	},
	"Purge": func(ctx context.Context, s *postgres.Store, of string) error {
		soon := time.Now().Add(time.Hour)
		_, err := s.Purge(ctx, driver.Purge{Payloads: soon, Attempts: soon, EventIDs: soon, DedupKeys: soon, Limit: 99})
		return err
	},
}

func testKey(account, id string, no int64) driver.Key {
	return driver.Key{ID: id, Account: account, Name: "key", Scopes: scopes.Specified(), CreatedAt: time.Now(), Hash: driver.Hash{Sum: [32]byte([]byte(fmt.Sprintf("%20s%012d", account, no)))}}
}

// transacting creates an account named of for one of the transactions.
func transacting(t *testing.T, s *postgres.Store, of string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(of, err)
		}
	}
	check(s.CreateWebhook(t.Context(), newWebhook(of, of), driver.CreateOptions{}))
	check(s.CreateKey(t.Context(), testKey(of, of, 1), driver.CreateOptions{}))
	_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: of, Account: of, Type: alerts.TypeBalanceLow})
	check(err)
	for _, task := range claimed(t, s) {
		settleAs(t, s, task, driver.Deliver)
	}
	if of == "AdvanceRecovery" {
		check(transactions["CreateRecovery"](t.Context(), s, of))
	}
}

// A node that loses power or is suspended in the middle of any step holds its locks only for a few
// seconds.
func TestSilentNode_AnyStep_FreesItsLocks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	flights := make(map[string]int)
	quiet := postgres.PollOnly() // its notifications would be counted as flights
	option := inSchema(t)
	first := open(t, option, quiet)
	for name, do := range transactions {
		transacting(t, first, name)
		s, w := wired(t, "counted", option, quiet)
		w.cutAfter(0)
		if err := do(t.Context(), s, name); err != nil {
			t.Fatal(name, err)
		}
		flights[name] = w.flights()
	}
	var steps []func()
	for _, at := range []func(flights int) int{
		func(n int) int { return n - 1 }, // before the last flight, which commits
		func(n int) int { return (n + 1) / 2 },
	} {
		shared, purged := inSchema(t), inSchema(t) // separate schemas: a purge affects all accounts of a schema
		other, purger := open(t, shared, quiet), open(t, purged, quiet)
		for name, do := range transactions {
			option, prepares := shared, other
			if name == "Purge" {
				option, prepares = purged, purger
			}
			transacting(t, prepares, name)
			s, w := wired(t, "silent "+name, option, quiet)
			w.cutAfter(at(flights[name]))
			steps = append(steps, func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if err := do(ctx, s, name); err == nil {
					t.Errorf("%s was done without an answer", name)
				}
			})
		}
	}
	var group sync.WaitGroup
	for _, step := range steps {
		group.Go(step)
	}
	// held counts, by step, the sessions that are idle in a transaction.
	held := func() map[string]int {
		t.Helper()
		of := make(map[string]int)
		rows, err := pool(t).Query(t.Context(), `
			select replace(application_name, 'silent ', ''), count(*) from pg_stat_activity
			where application_name like 'silent %' and state like 'idle in transaction%' group by 1`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var name string
			var n int
			if err := rows.Scan(&name, &n); err != nil {
				t.Fatal(err)
			}
			of[name] = n
		}
		return of
	}
	seen := make(map[string]int)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for name, n := range held() {
			seen[name] = max(seen[name], n)
		}
	}
	for name := range transactions {
		if seen[name] == 0 {
			t.Errorf("%s was never cut off in a transaction: the test shows nothing", name)
		}
	}
	left := held()
	for end := time.Now().Add(8 * time.Second); len(left) > 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		left = held()
	}
	for name, n := range left {
		t.Errorf("%d times what %s has locked stays locked", n, name)
	}
	group.Wait()
}

// A node that is cut off during a claim of any size blocks the other nodes only for a short time.
// They deliver the events of its shards. After it has reconnected, it cannot settle its earlier
// attempts.
func TestClaim_NodeCutOff_BlocksOthersBriefly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	option := inSchema(t)
	s, w := wired(t, "silent claim", option)
	other := open(t, option)
	if err := other.CreateWebhook(t.Context(), newWebhook("acct", "wh"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const events, size = 40, 256 << 10
	for range events {
		if _, err := other.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(rand.Int64()), Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	underWay, err := storetest.WorkerOf(s).Claim(t.Context(), 4)
	if err != nil || len(underWay) != 4 {
		t.Fatalf("claimed %d, want 4; %v", len(underWay), err)
	}
	w.cutAfter(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := storetest.WorkerOf(s).Claim(ctx, 400); err == nil {
		t.Error("a claim without an answer has no error")
	}
	begun, got := time.Now(), 0
	for end := begun.Add(20 * time.Second); got < events && time.Now().Before(end); {
		tasks := claimed(t, other)
		for _, task := range tasks {
			if task.Attempt != 1 {
				t.Errorf("attempt %d, and none was made", task.Attempt)
			}
		}
		if got += len(tasks); len(tasks) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if took := time.Since(begun); got != events || took > 10*time.Second {
		t.Errorf("another node claimed %d after %v, want %d within 10s", got, took, events)
	}
	w.mend()
	var settlements []storetest.Settlement
	for _, task := range underWay {
		settlements = append(settlements, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1, StartedAt: time.Now()}})
	}
	eventually(t, "what it had under way is stale", func() bool {
		stale, err := storetest.WorkerOf(s).Settle(t.Context(), settlements)
		if err == nil && len(stale) != len(settlements) {
			t.Fatalf("%d of %d are stale", len(stale), len(settlements))
		}
		return err == nil
	})
}

// One Load returns at most 4 MiB of bodies, except that a single body may be larger.
func TestLoad_BodiesAreBounded(t *testing.T) {
	s := open(t, inSchema(t))
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "wh"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{3 << 19, 3 << 19, 3 << 19, 5 << 20, 1, 1} {
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(i), Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	var refs []driver.DeliveryRef
	for _, task := range claimed(t, s) {
		refs = append(refs, task.Ref)
	}
	for _, want := range []string{"[0 1]", "[2]", "[3]", "[4 5]"} {
		found, err := s.Load(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		var unread []driver.DeliveryRef
		for i, l := range found {
			if l.State == driver.Unread {
				unread = append(unread, refs[i])
			} else {
				ids = append(ids, l.Event.ID)
			}
		}
		if got := fmt.Sprint(ids); got != want {
			t.Errorf("loaded %s, want %s", got, want)
		}
		refs = unread
	}
	if len(refs) > 0 {
		t.Errorf("%d are not loaded", len(refs))
	}
}

// cut cuts the wire now.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
}
