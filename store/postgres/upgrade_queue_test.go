package postgres_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/webhooks"
)

var queued = flag.String("queued", "", "the last commit of version 19, whose nodes claim from the table queue: nodes of it are run")

// clonedAt returns a directory with the repository as it was at a commit, and runs commands.
func clonedAt(t *testing.T, commit string) (tree string, run func(dir, name string, args ...string) string) {
	t.Helper()
	run = func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	tree = filepath.Join(t.TempDir(), "tree")
	commit = run(".", "git", "rev-parse", "--verify", commit+"^{commit}")
	run(".", "git", "clone", "-q", "--shared", "--no-checkout", run(".", "git", "rev-parse", "--show-toplevel"), tree)
	run(tree, "git", "checkout", "-q", commit)
	return tree, run
}

// queueNodes returns the binary of testdata/before at the commit of -queued.
func queueNodes(t *testing.T) string {
	t.Helper()
	if *queued == "" {
		t.Skip("-queued names no commit")
	}
	tree, run := clonedAt(t, *queued)
	module := filepath.Join(tree, "store", "postgres")
	if err := os.CopyFS(filepath.Join(module, "before"), os.DirFS("testdata/before")); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(tree, "before")
	run(module, "go", "build", "-o", binary, "./before")
	return binary
}

// A queueNode is a process of testdata/before.
type queueNode struct {
	t     *testing.T
	in    io.WriteCloser
	told  *tally
	ended chan struct{}

	mu      sync.Mutex
	last    int
	answers map[string]chan string
	failed  []string
}

func startQueueNode(t *testing.T, binary, dsn, schema string, told *tally) *queueNode {
	t.Helper()
	process := exec.Command(binary, dsn+" pool_max_conns=40", schema)
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	n := &queueNode{t: t, in: in, told: told, ended: make(chan struct{}), answers: make(map[string]chan string)}
	go func() {
		defer close(n.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n.hear(lines.Text())
		}
		_ = process.Wait()
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-n.ended
	})
	return n
}

func (n *queueNode) hear(line string) {
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "ack":
		account, event, _ := strings.Cut(rest, " ")
		n.told.tell(account, event)
	case "fail":
		n.mu.Lock()
		defer n.mu.Unlock()
		n.failed = append(n.failed, rest)
	default:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.answers[what] <- rest
	}
}

// begin begins an operation, and returns what awaits its result.
func (n *queueNode) begin(words ...any) (end func() (result string, err error)) {
	n.t.Helper()
	answer := make(chan string, 1)
	n.mu.Lock()
	n.last++
	id := fmt.Sprint(n.last)
	n.answers[id] = answer
	n.mu.Unlock()
	if _, err := fmt.Fprintln(n.in, append([]any{id}, words...)...); err != nil {
		n.t.Fatal(err)
	}
	return func() (string, error) {
		select {
		case text := <-answer:
			how, result, _ := strings.Cut(text, " ")
			if how != "ok" {
				return "", fmt.Errorf("%v: %s", words, result)
			}
			return result, nil
		case <-time.After(time.Minute):
			return "", fmt.Errorf("%v: no answer in a minute", words)
		case <-n.ended:
			return "", fmt.Errorf("%v: the node has ended", words)
		}
	}
}

// do does an operation that must succeed.
func (n *queueNode) do(words ...any) (result string) {
	n.t.Helper()
	result, err := n.begin(words...)()
	if err != nil {
		n.t.Fatal(err)
	}
	return result
}

// A queueSchema is one of the last version whose nodes claim from the queue.
type queueSchema struct {
	t      *testing.T
	name   string
	option postgres.Option
}

func atLastQueued(t *testing.T) *queueSchema {
	t.Helper()
	name := newSchema(t)
	s := &queueSchema{t, name, postgres.InSchema(name)}
	if err := postgres.Migrate(t.Context(), pool(t), s.option, postgres.KnowingOnly(lastQueued)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *queueSchema) migrate() {
	s.t.Helper()
	began := time.Now()
	if err := postgres.Migrate(s.t.Context(), pool(s.t), s.option); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("migrated within %v", time.Since(began))
}

// ask returns the number that a query is for.
func (s *queueSchema) ask(query string, args ...any) (n int) {
	s.t.Helper()
	err := pgx.BeginFunc(s.t.Context(), pool(s.t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(s.t.Context(), `set local search_path to `+quoted(s.name)); err != nil {
			return err
		}
		return tx.QueryRow(s.t.Context(), query, args...).Scan(&n)
	})
	if err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// want reports that the number is another.
func (s *queueSchema) want(want int, query string, args ...any) {
	s.t.Helper()
	if n := s.ask(query, args...); n != want {
		s.t.Errorf("%s %v = %d, want %d", query, args, n, want)
	}
}

// pendingOf counts the pending deliveries of an event by its id, ready or not.
const pendingOf = `select count(*) from pending join event_log using (event) where id = $1`

// changesTo counts the changes of a kind that name a webhook by its id.
const changesTo = `select count(*) from changes c join webhooks w on w.no = any(c.webhooks) and shard_of(w.account) = any(c.shards) where w.id = $1 and kind = $2`

// wantNothingLeft reports what is left in the old tables, or is not as a node needs it.
func (s *queueSchema) wantNothingLeft() {
	s.t.Helper()
	for _, query := range []string{
		`select count(*) from queue`,
		`select count(*) from leases`,
		`select count(*) from pending p join webhooks w on w.no = p.webhook where p.shard <> shard_of(w.account)`,
		`select count(*) from pending where webhook not in (select no from webhooks union all select no from past_webhooks)`,
	} {
		s.want(0, query)
	}
}

// wantKept reports what was acknowledged and is neither pending nor settled.
func (s *queueSchema) wantKept(told *tally) {
	s.t.Helper()
	var accounts, ids []string
	told.mu.Lock()
	for id, account := range told.events {
		accounts, ids = append(accounts, account), append(ids, id)
	}
	told.mu.Unlock()
	s.want(len(ids), `select count(*) from unnest($1::text[], $2::text[]) as told (account, id)
		join event_log e using (account, id) join webhooks w using (account)
		where exists (select from pending where webhook = w.no and event = e.event)
			or exists (select from attempt_log where webhook = w.no and event = e.event and state > 0)`, accounts, ids)
	s.t.Logf("%d events were acknowledged, %d deliveries are pending", len(ids), s.ask(`select count(*) from pending`))
}

// Nodes of the version before do everything at once, while the schema is migrated and nodes of
// this version begin to deliver. Nothing that is acknowledged is lost, nothing fails, and all is
// delivered in the end.
func queueMovesAtWork(t *testing.T, binary string) {
	s := atLastQueued(t)
	told := newTally()
	nodes := []*queueNode{startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, told), startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, told)}
	for i := range 8 {
		nodes[0].do("create", fmt.Sprint("load_", i), fmt.Sprint("wh_load_", i))
	}
	for i, n := range nodes {
		n.do("load", fmt.Sprint("node", i))
	}
	told.more(t, 1000)
	s.migrate()
	var claims, stale atomic.Int64
	stop := s.delivering(&claims, &stale, 2)
	defer stop()
	told.more(t, 1000)
	eventually(t, "nodes of this version deliver", func() bool { return claims.Load() > 500 })
	for _, n := range nodes {
		n.do("stop")
		for _, failed := range n.failed {
			if !strings.HasPrefix(failed, "claim ") || !strings.Contains(failed, "attempts_pkey") { // what is recovered while it is settled, in that version
				t.Error(failed)
			}
		}
	}
	s.wantKept(told)
	s.wantDelivered()
	stop()
	s.wantNothingLeft()
	t.Logf("%d claims, %d stale", claims.Load(), stale.Load())
}

// wantDelivered waits until nothing is pending any more for webhooks that are there.
func (s *queueSchema) wantDelivered() {
	s.t.Helper()
	const owed = `select count(*) from pending join webhooks on no = webhook`
	for end := time.Now().Add(time.Minute); s.ask(owed) > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	s.want(0, owed)
}

// delivering has nodes of this version deliver until stop is called.
func (s *queueSchema) delivering(claims, stale *atomic.Int64, nodes int) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var group sync.WaitGroup
	for range nodes {
		group.Go(func() { s.deliver(ctx, claims, stale) })
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// deliver is a node of this version that delivers until ctx ends, most at the first attempt.
func (s *queueSchema) deliver(ctx context.Context, claims, stale *atomic.Int64) {
	store, err := postgres.New(ctx, pool(s.t), s.option)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = store.Close() }()
	for ctx.Err() == nil {
		tasks, wait, err := store.ClaimDeliveries(context.WithoutCancel(ctx), webhooks.Claim{Limit: 50, Lease: time.Minute, Probes: 1})
		if err != nil {
			s.t.Errorf("ClaimDeliveries = %v", err)
			return
		}
		var list []webhooks.Settlement
		for _, task := range tasks {
			outcome := webhooks.Deliver
			switch {
			case task.Err != nil:
				outcome = webhooks.GiveUp
			case rand.IntN(5) == 0:
				outcome = []webhooks.Outcome{webhooks.Retry, webhooks.Release, webhooks.GiveUp}[rand.IntN(3)]
			}
			list = append(list, webhooks.Settlement{
				Task: task, Outcome: outcome, RetryAfter: 20 * time.Millisecond, Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 200},
			})
		}
		places, err := store.SettleDeliveries(context.WithoutCancel(ctx), list)
		if err != nil {
			s.t.Errorf("SettleDeliveries = %v", err)
			return
		}
		claims.Add(int64(len(tasks)))
		stale.Add(int64(len(places)))
		if len(tasks) == 0 {
			time.Sleep(min(wait, 20*time.Millisecond))
		}
	}
}

// What is pending comes along as it is: parked, recovered, suspended, attempted; and what is under
// way, whose settlement is stale then. What a webhook that is gone has left does not.
func queueMovesAsItIs(t *testing.T, binary string) {
	s := atLastQueued(t)
	n := startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, newTally())
	for _, id := range []string{"a", "b", "c", "gone"} {
		n.do("create", id, "wh_"+id)
	}
	n.do("publish", "gone", "lost")
	n.do("delete", "gone", "wh_gone")
	n.do("publish", "a", "retried")
	n.do("claim", "first", 10)
	n.do("settle", "first", "retry")
	n.do("publish", "b", "delivered")
	n.do("publish", "b", "dead")
	n.do("claim", "second", 10) // perhaps also what is to be retried
	n.do("settle", "second", "giveup")
	n.do("recover", "b", "wh_b", "rec")
	n.do("advance")
	n.do("publish", "c", "released")
	n.do("batch", "c", "more", 20)
	claimed := n.do("claim", "third", 100)
	before := s.ask(`select count(*) from queue join webhooks on no = webhook`)
	if s.ask(`select count(*) from leases`) == 0 {
		t.Fatal("nothing is under way")
	}
	in(t, s.name, `create table before as select webhook, event, kind & 1 = 1 as recovered, due, attempts, before from queue`)
	s.migrate()
	s.want(before, `select count(*) from pending join before using (webhook, event, recovered, due, attempts, before)`)
	s.want(before, `select count(*) from pending`)
	s.wantNothingLeft()
	if stale := n.do("settle", "third", "deliver"); stale != claimed {
		t.Errorf("%s settlements were stale, want %s", stale, claimed)
	}
	if claimed := n.do("claim", "fourth", 100); claimed != "0" {
		t.Errorf("a node of before claimed %s deliveries", claimed)
	}
	s.want(before, `select count(*) from pending join before using (webhook, event, recovered, due, attempts, before)`)
}

// Transactions of the host publish, whenever they have begun and are committed.
func queueMovesTransactions(t *testing.T, binary string) {
	s := atLastQueued(t)
	n := startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, newTally())
	n.do("create", "a", "wh_a")
	n.do("begin", "rolled_back", "read_committed")
	n.do("begin", "open", "read_committed")
	n.do("publishtx", "rolled_back", "a", "nothing")
	n.do("publishtx", "open", "a", "across")
	levels := []string{"read_committed", "repeatable_read", "serializable"}
	for _, level := range levels {
		n.do("begin", level, level)
	}
	migrated := make(chan error)
	go func() { migrated <- postgres.Migrate(t.Context(), pool(t), s.option) }()
	for i := range 20 {
		n.do("publish", "a", fmt.Sprint("meanwhile", i))
		n.do("key", "a", fmt.Sprint("key", i))
	}
	n.do("rollback", "rolled_back")
	select {
	case err := <-migrated:
		t.Fatalf("Migrate returned before a transaction that publishes: %v", err)
	default:
	}
	n.do("commit", "open")
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	for _, level := range levels {
		n.do("publishtx", level, "a", level)
		n.do("publishtx", level, "a", level+"2")
		s.want(0, pendingOf, level)
		n.do("commit", level)
		s.want(1, pendingOf, level)
		s.want(1, pendingOf, level+"2")
	}
	s.want(1, pendingOf, "across")
	s.want(0, pendingOf, "nothing")
	s.want(3, `select count(distinct added) from changes where kind = 0`)
	s.want(6, `select count(*) from changes where kind = 0`)
	s.want(6+20+1, `select count(*) from pending`)
	s.wantNothingLeft()
}

// What nodes of before do afterwards is heard of.
func queueMovesCalls(t *testing.T, binary string) {
	s := atLastQueued(t)
	n := startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, newTally())
	for _, id := range []string{"a", "b", "held", "gone", "erased", "imported"} {
		n.do("create", id, "wh_"+id)
		n.do("publish", id, id)
	}
	n.do("claim", "tasks", 10)
	n.do("settle", "tasks", "deliver")
	n.do("batch", "a", "some", 10)
	s.migrate()

	n.do("batch", "a", "more", 50)
	s.want(60, `select count(*) from pending`)
	s.want(50, changesTo, "wh_a", 0)

	n.do("redeliver", "a", "wh_a", "a")
	s.want(1, pendingOf, "a")
	s.want(51, changesTo, "wh_a", 0)
	s.want(1, `select attempts from pending join event_log using (event) where id = 'a'`)
	in(t, s.name, `update pending set due = now() + interval '1 hour', recovered = true where event = (select event from event_log where id = 'a')`)
	n.do("redeliver", "a", "wh_a", "a") // once more, which is heard of as what is pending already
	s.want(1, changesTo, "wh_a", 1)
	s.want(1, `select count(*) from pending join event_log using (event) where id = 'a' and due <= clock_timestamp() and not recovered`)

	n.do("recover", "b", "wh_b", "rec")
	n.do("advance")
	s.want(1, `select count(*) from pending join event_log using (event) where id = 'b' and recovered`)
	s.want(1, changesTo, "wh_b", 0)
	n.do("recover", "a", "wh_a", "again") // what is pending stays as it is
	n.do("advance")
	s.want(51, changesTo, "wh_a", 0)
	s.want(1, changesTo, "wh_a", 1)

	n.do("probe", "a", "wh_a")
	s.want(2+1, changesTo, "wh_a", 3) // to redeliver asks for one, too
	n.do("set", "held", "wh_held", "inactive")
	n.do("set", "held", "wh_held", "held")
	s.want(0, changesTo, "wh_held", 2)
	n.do("set", "held", "wh_held", "active")
	s.want(1, changesTo, "wh_held", 2)
	n.do("set", "held", "wh_held", "released")
	s.want(2, changesTo, "wh_held", 2)

	n.do("publish", "gone", "last")
	gone := s.ask(`select no from webhooks where id = 'wh_gone'`)
	n.do("delete", "gone", "wh_gone")
	s.want(1, `select count(*) from changes where kind = 2 and $1 = any(webhooks)`, gone)
	n.do("purge", 10)
	s.want(1, `select count(*) from pending where webhook = $1`, gone)
	in(t, s.name, `update past_webhooks set deleted_at = deleted_at - interval '2 days'; delete from attempt_log where webhook = `+fmt.Sprint(gone))
	n.do("purge", 10)
	s.want(0, `select count(*) from pending where webhook = $1`, gone)
	s.want(0, `select count(*) from past_webhooks where no = $1`, gone)

	n.do("import", "imported", "wh_imported", "old", 100, 100)
	s.want(100, `select count(*) from pending where webhook = (select no from webhooks where id = 'wh_imported')`)
	n.do("purge", 50)
	s.want(100, `select count(*) from pending left join event_log using (event) where webhook = (select no from webhooks where id = 'wh_imported') and body is null`)

	n.do("publish", "erased", "secret")
	n.do("erase", "erased")
	s.want(0, `select count(*) from event_log where account = 'erased'`)
	n.do("create", "new", "wh_new")
	n.do("publish", "new", "new")
	n.do("key", "new", "new")
	s.want(1, pendingOf, "new")
	s.wantNothingLeft()

	stop := s.delivering(new(atomic.Int64), new(atomic.Int64), 1)
	defer stop()
	s.wantDelivered()
	stop()
	s.want(0, `select count(*) from pending where webhook = (select no from webhooks where id = 'wh_imported')`) // what is past has ended
	if _, err := open(t, s.option).Purge(t.Context(), webhooks.Purge{Limit: 1000}); err != nil {
		t.Fatal(err)
	}
	s.want(0, `select count(*) from pending`)
}

// A backup that was begun before does not hold up the migration, and has what was there; one made
// after it has what is pending.
func queueMovesDumps(t *testing.T, binary string) {
	s := atLastQueued(t)
	n := startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, newTally())
	n.do("create", "a", "wh_a")
	n.do("batch", "a", "before", 20)
	backup, err := pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backup.Rollback(context.Background()) }()
	count := func() (n int) {
		t.Helper()
		if err := backup.QueryRow(t.Context(), `select count(*) from `+quoted(s.name)+`.queue`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tables := `lock table ` // as pg_dump locks them
	for i, table := range []string{"accounts", "attempts", "events", "leases", "marks", "past_webhooks", "queue", "versions", "webhooks"} {
		if i > 0 {
			tables += ", "
		}
		tables += quoted(s.name) + "." + table
	}
	if _, err := backup.Exec(t.Context(), tables+` in access share mode`); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 20 {
		t.Fatalf("%d rows in the queue, want 20", n)
	}
	if err := postgres.Migrate(t.Context(), pool(t), s.option, postgres.KnowingOnly(lastQueued+1)); err != nil { // the next ones wait for it
		t.Fatal(err)
	}
	n.do("batch", "a", "after", 20)
	if n := count(); n != 20 {
		t.Errorf("the backup finds %d rows in the queue after the migration, want 20", n)
	}
	if err := backup.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.migrate()
	restored := dumped(t, s.name, "restored_queue")
	var pending, triggers int
	if err := restored.QueryRow(t.Context(), `select count(*) from `+quoted(s.name)+`.pending`).Scan(&pending); err != nil || pending != 40 {
		t.Errorf("%d deliveries are pending where the dump was restored, %v, want 40", pending, err)
	}
	if err := restored.QueryRow(t.Context(), `select count(*) from pg_trigger where tgrelid = to_regclass($1) and not tgisinternal`, quoted(s.name)+`.queue`).Scan(&triggers); err != nil || triggers != 1 {
		t.Errorf("%d triggers where the dump was restored, %v, want 1", triggers, err)
	}
}

// The way back of docs/operations.md: nodes of before deliver what was pending, and the schema can
// be migrated again.
func queueMovesBack(t *testing.T, binary string) {
	s := atLastQueued(t)
	n := startQueueNode(t, binary, pool(t).Config().ConnString(), s.name, newTally())
	n.do("create", "a", "wh_a")
	n.do("batch", "a", "before", 20)
	s.migrate()
	n.do("batch", "a", "after", 20)
	n.do("create", "b", "wh_b")
	in(t, s.name, `update webhooks set shard = shard_of(account)`) // as nodes of this version store it
	n.do("publish", "b", "last")
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, back, _ := strings.Cut(string(page), "```sql\nbegin;\nlock table storageapi.")
	back, _, _ = strings.Cut(back, "```")
	back = "begin;\nlock table storageapi." + back
	if _, err := pool(t).Exec(t.Context(), strings.ReplaceAll(back, "storageapi.", quoted(s.name)+".")); err != nil {
		t.Fatal(err)
	}
	s.want(lastQueued, `select max(version) from versions`)
	s.want(41, `select count(*) from queue join webhooks on no = webhook where webhooks.shard = queue.shard and not parked and kind = 0`)
	for _, id := range []string{"wh_a", "wh_b"} {
		n.do("probe", id[len("wh_"):], id)
	}
	n.do("claim", "all", 100)
	if stale := n.do("settle", "all", "deliver"); stale != "0" {
		t.Errorf("%s settlements were stale", stale)
	}
	s.want(41, `select count(*) from attempts where state = 1`)
	n.do("publish", "a", "again")
	s.migrate()
	s.want(1, `select count(*) from pending`)
	s.wantNothingLeft()
}

// Services of the version before deliver and tell of alerts while others of this version take
// their place: the first migrates, and one of before is killed. All that is acknowledged arrives,
// and alerts are told once.
func queueMovesServices(t *testing.T, binary string) {
	tree := filepath.Dir(binary)
	nodes := filepath.Join(tree, "before.test")
	build := exec.Command("go", "test", "-c", "-o", nodes, ".")
	build.Dir = filepath.Join(tree, "store", "postgres")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := cluster.Start()
	if err != nil {
		skip(t, err)
	}
	defer c.Stop()
	dsn := c.DSN("postgres") + " pool_max_conns=12"
	p, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := postgres.Migrate(t.Context(), p, postgres.KnowingOnly(lastQueued)); err != nil {
		t.Fatal(err)
	}
	l, receiver, roots := newLedger(t)
	add := func(account, url string) {
		t.Helper()
		if _, err := p.Exec(t.Context(), `insert into storageapi.webhooks (account, id, shard, url, events, past_events, active, off_reason, balance_threshold, secret, created_at)
			values ($1, $2, $3, $4, $5, '{}', true, '', 0, $6, now())`,
			account, "wh_"+account, postgres.ShardOf(account)%16, url, webhooks.EventTypes(), []byte(signing.NewSecret().Reveal())); err != nil {
			t.Fatal(err)
		}
	}
	for i := range accounts {
		add(fmt.Sprint("acct_", i), fmt.Sprint(receiver.URL, "/", i))
	}
	for i := range metered {
		add(meteredAccount(i), receiver.URL+"/"+meteredAccount(i))
	}
	publisher := startQueueNode(t, binary, c.DSN("postgres"), postgres.DefaultSchema, newTally())
	publish := func(prefix string, n int) {
		t.Helper()
		for i := range n {
			account, id := fmt.Sprint("acct_", i%accounts), fmt.Sprint(prefix, i)
			publisher.do("publish", account, id)
			l.mu.Lock()
			l.acknowledged[id] = true
			l.mu.Unlock()
		}
	}
	before := []*node{startNodeOf(t, nodes, dsn, roots), startNodeOf(t, nodes, dsn, roots)}
	publish("before", 200)
	startNode(t, dsn, roots)
	publish("during", 400)
	startNode(t, dsn, roots)
	s, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	service, err := webhooks.New(s, webhooks.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	stop := l.load(service)
	l.more(t, 10)
	before[0].kill()
	publish("after", 200)
	l.more(t, 10)
	_ = before[1].stdin.Close()
	_ = before[1].process.Wait()
	l.more(t, 5)
	stop()
	l.await(t)
}

// With -queued=COMMIT: nodes of the version before nodes owned shards, and the migration to it.
func TestQueueMoves(t *testing.T) {
	binary := queueNodes(t)
	for name, test := range map[string]func(*testing.T, string){
		"as it is": queueMovesAsItIs, "transactions": queueMovesTransactions, "calls": queueMovesCalls, "dumps": queueMovesDumps, "and back": queueMovesBack, "services": queueMovesServices,
		"at work": queueMovesAtWork, "at work again": queueMovesAtWork,
	} {
		t.Run(name, func(t *testing.T) { test(t, binary) })
	}
}

// The shards of what is moved are those that nodes look in.
func TestShardOf(t *testing.T) {
	name, _ := migratedSchema(t)
	list := []string{"a", " ", "acct_1", "é", "ß", "\u2028", "日本", "🙂", "a\u0301", "\u007f", "\U0010ffff", "\ufffd", "%s'\"$1", strings.Repeat("ü", 500)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var account []rune
		for range 1 + random.IntN(30) {
			r := rune(1 + random.IntN(utf8.MaxRune))
			if random.IntN(2) == 0 {
				r %= 0x800
			}
			if r == 0 || !utf8.ValidRune(r) {
				r = 'x'
			}
			account = append(account, r)
		}
		list = append(list, string(account))
	}
	rows, err := pool(t).Query(t.Context(), `select account, `+quoted(name)+`.shard_of(account) from unnest($1::text[]) as account`, list)
	if err != nil {
		t.Fatal(err)
	}
	var account string
	var shard int16
	seen := make(map[int16]bool)
	if _, err := pgx.ForEachRow(rows, []any{&account, &shard}, func() error {
		if want := postgres.ShardOf(account); shard != want {
			t.Errorf("shard_of(%q) = %d, want %d", account, shard, want)
		}
		seen[shard] = true
		return nil
	}); err != nil || len(seen) != 256 {
		t.Errorf("%d shards, %v, want 256", len(seen), err)
	}
}
