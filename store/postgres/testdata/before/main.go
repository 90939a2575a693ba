// Command before is a node of the version before nodes owned shards. TestQueueMoves builds it in a
// clone of the commit that it is given, next to that version of store/postgres.
//
// Each line of its input is a number, an operation and arguments, and is answered by a line: the
// number, and "ok" with a result or "err" with an error. Operations run at the same time. What load
// publishes is told by lines of "ack", an account and an event.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// A node does operations, each of which has arguments and a result.
type node struct {
	pool *pgxpool.Pool
	s    *postgres.Store

	mu    sync.Mutex
	txs   map[string]pgx.Tx
	tasks map[string][]webhooks.Task
	acked [][2]string
	stop  context.CancelFunc
	group sync.WaitGroup
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[1])
	check(err)
	s, err := postgres.New(ctx, pool, postgres.InSchema(os.Args[2]))
	check(err)
	n := &node{pool: pool, s: s, txs: make(map[string]pgx.Tx), tasks: make(map[string][]webhooks.Task)}
	var group sync.WaitGroup
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		group.Go(func() {
			result, err := n.do(ctx, words[1], words[2:])
			if err != nil {
				say(words[0], "err", strings.ReplaceAll(err.Error(), "\n", " "))
				return
			}
			say(words[0], "ok", result)
		})
	}
	group.Wait()
	check(s.Close())
	pool.Close()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "node of before:", err)
		os.Exit(1)
	}
}

var out sync.Mutex

func say(words ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Println(words...)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

func (n *node) do(ctx context.Context, op string, a []string) (result any, err error) {
	switch op {
	case "publish": // account event
		return n.s.Enqueue(ctx, event(a[0], a[1]))
	case "batch": // account prefix events
		return "", n.batch(ctx, a[0], a[1], number(a[2]))
	case "begin": // name isolation
		tx, err := n.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(strings.ReplaceAll(a[1], "_", " "))})
		if err == nil {
			_, err = tx.Exec(ctx, `select 1 from pg_class limit 1`) // its snapshot
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.txs[a[0]] = tx
		return "", err
	case "publishtx": // name account event
		return n.s.EnqueueTx(ctx, n.tx(a[0]), event(a[1], a[2]))
	case "commit":
		return "", n.tx(a[0]).Commit(ctx)
	case "rollback":
		return "", n.tx(a[0]).Rollback(ctx)
	case "claim": // name limit
		tasks, _, err := n.s.ClaimDeliveries(ctx, webhooks.Claim{Limit: number(a[1]), Lease: time.Minute})
		n.mu.Lock()
		defer n.mu.Unlock()
		n.tasks[a[0]] = tasks
		return len(tasks), err
	case "settle": // name outcome; the result is how many were stale
		n.mu.Lock()
		tasks := n.tasks[a[0]]
		n.mu.Unlock()
		return n.settle(ctx, tasks, a[1])
	case "redeliver": // account webhook event
		return "", n.s.Redeliver(ctx, a[0], a[1], a[2], notices.Notice{})
	case "recover": // account webhook id
		return "", n.recover(ctx, a[0], a[1], a[2])
	case "advance":
		return n.s.AdvanceRecovery(ctx, 1000)
	case "probe": // account webhook
		return "", n.s.Probe(ctx, a[0], a[1])
	case "create": // account webhook
		return "", n.create(ctx, a[0], a[1])
	case "set": // account webhook active|inactive|held|released
		_, err := n.s.UpdateWebhook(ctx, a[0], a[1], func(w *webhooks.Webhook, _ *notices.Notice) error {
			switch a[2] {
			case "active", "inactive":
				w.Active = a[2] == "active"
			default:
				w.Held = a[2] == "held"
			}
			return nil
		})
		return "", err
	case "delete": // account webhook
		return "", n.s.DeleteWebhook(ctx, a[0], a[1], nil, notices.Notice{})
	case "key": // account id
		return "", n.key(ctx, a[0], a[1])
	case "purge": // hours
		before := time.Now().Add(-time.Duration(number(a[0])) * time.Hour)
		for more := true; more && err == nil; {
			more, err = n.s.Purge(ctx, webhooks.Purge{Payloads: before, Attempts: before, EventIDs: before, DedupKeys: before, Notices: before, Limit: 1000})
		}
		return "", err
	case "erase": // account
		return "", n.erase(ctx, a[0])
	case "import": // account webhook prefix events hours
		return "", n.load(ctx, a[0], a[1], a[2], number(a[3]), time.Duration(number(a[4]))*time.Hour)
	case "load": // name
		ctx, n.stop = context.WithCancel(ctx)
		n.work(ctx, a[0])
		return "", nil
	case "stop":
		n.stop()
		n.group.Wait()
		return "", nil
	}
	return "", errors.New("no such operation: " + op)
}

func (n *node) tx(name string) pgx.Tx {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.txs[name]
}

func event(account, id string) webhooks.EncodedEvent {
	return webhooks.EncodedEvent{
		ID: id, Account: account, Type: webhooks.TypeBalanceLow, Timestamp: time.Now(), Body: fmt.Appendf(nil, `{"id":%q,"type":%q}`, id, webhooks.TypeBalanceLow),
	}
}

func (n *node) create(ctx context.Context, account, id string) error {
	return n.s.CreateWebhook(ctx, webhooks.Webhook{
		ID: id, Account: account, URL: "https://example.com/", Events: []webhooks.EventType{webhooks.TypeBalanceLow},
		Active: true, Secret: signing.NewSecret(), CreatedAt: time.Now(),
	}, webhooks.CreateOptions{})
}

func (n *node) batch(ctx context.Context, account, prefix string, events int) error {
	failed := make([]error, events)
	var group sync.WaitGroup
	for i := range events {
		group.Go(func() { _, failed[i] = n.s.Enqueue(ctx, event(account, fmt.Sprint(prefix, i))) })
	}
	group.Wait()
	return errors.Join(failed...)
}

func (n *node) settle(ctx context.Context, tasks []webhooks.Task, outcome string) (stale int, err error) {
	outcomes := map[string]webhooks.Outcome{"deliver": webhooks.Deliver, "retry": webhooks.Retry, "release": webhooks.Release, "giveup": webhooks.GiveUp}
	var list []webhooks.Settlement
	for _, task := range tasks {
		list = append(list, webhooks.Settlement{
			Task: task, Outcome: outcomes[outcome], RetryAfter: time.Duration(rand.IntN(200)) * time.Millisecond,
			Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 200},
		})
	}
	places, err := n.s.SettleDeliveries(ctx, list)
	return len(places), err
}

func (n *node) recover(ctx context.Context, account, webhook, id string) error {
	return n.s.CreateRecovery(ctx, webhooks.Recovery{
		ID: id, Account: account, WebhookID: webhook, CreatedAt: time.Now(),
		States: []webhooks.DeliveryState{webhooks.Delivered, webhooks.Dead, webhooks.Skipped},
	}, notices.Notice{})
}

// key creates a key and verifies it by both of its values.
func (n *node) key(ctx context.Context, account, id string) error {
	first, second := apikeys.Hash{Sum: sha256.Sum256([]byte(id))}, apikeys.Hash{Sum: sha256.Sum256([]byte(id + "'"))}
	key := apikeys.Key{ID: id, Account: account, Name: "key", Scopes: scopes.All(), CreatedAt: time.Now(), Hash: first}
	if err := n.s.CreateKey(ctx, key, apikeys.CreateOptions{}); err != nil {
		return err
	}
	if _, err := n.s.UpdateKey(ctx, account, id, func(k *apikeys.Key, _ *notices.Notice) error {
		k.Hash, k.Previous, k.PreviousExpiresAt = second, first, time.Now().Add(time.Hour)
		return nil
	}); err != nil {
		return err
	}
	for _, hash := range []apikeys.Hash{first, second} {
		if found, err := n.s.KeyByHash(ctx, hash); err != nil || found.ID != id {
			return fmt.Errorf("found %q, %w", found.ID, err)
		}
	}
	return nil
}

func (n *node) erase(ctx context.Context, account string) error {
	for {
		if _, more, err := n.s.EraseAccount(ctx, account, 1000); !more || err != nil {
			return err
		}
	}
}

// load imports events that are pending, published some time ago.
func (n *node) load(ctx context.Context, account, webhook, prefix string, events int, ago time.Duration) error {
	var records []transfer.Record
	for i := range events {
		at := time.Now().Add(-ago).Add(time.Duration(i) * time.Millisecond)
		records = append(records, &transfer.Event{
			EncodedEvent: event(account, fmt.Sprint(prefix, i)), PublishedAt: at, Matched: 1,
			Deliveries: []transfer.Delivery{{WebhookID: webhook, State: webhooks.Pending, AsPublished: true}},
		})
	}
	return n.s.Import(ctx, records)
}

// accounts of load have a webhook each, wh_ and the account.
const accounts = 8

// work does everything at once until ctx ends. An error is told by a line of "fail".
func (n *node) work(ctx context.Context, name string) {
	lasting := context.WithoutCancel(ctx)
	loop := func(what string, step func(ctx context.Context, i int) error) {
		n.group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := step(lasting, i); err != nil {
					say("fail", what, strings.ReplaceAll(err.Error(), "\n", " "))
				}
			}
		})
	}
	ack := func(account, id string) {
		n.mu.Lock()
		n.acked = append(n.acked, [2]string{account, id})
		n.mu.Unlock()
		say("ack", account, id)
	}
	some := func() string { return fmt.Sprint("load_", rand.IntN(accounts)) }
	rest := func(most int) { time.Sleep(time.Duration(rand.IntN(most)) * time.Millisecond) }
	for p := range 6 {
		loop("publish", func(ctx context.Context, i int) error {
			account, id := some(), fmt.Sprintf("%s_p%d_%d", name, p, i)
			made, err := n.s.Enqueue(ctx, event(account, id))
			if err == nil && made != 1 {
				err = fmt.Errorf("%d deliveries", made)
			}
			if err == nil {
				ack(account, id)
			}
			rest(4)
			return err
		})
	}
	for p, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		loop("publishtx", func(ctx context.Context, i int) (err error) {
			defer func() { // a host repeats its transaction then
				var refused *pgconn.PgError
				if isolation == pgx.Serializable && errors.As(err, &refused) && refused.Code == "40001" {
					err = nil
				}
			}()
			tx, err := n.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if _, err := tx.Exec(ctx, `select 1 from pg_class limit 1`); err != nil {
				return err
			}
			rest(40)
			account, ids := some(), []string{fmt.Sprintf("%s_t%d_%d", name, p, i), fmt.Sprintf("%s_u%d_%d", name, p, i)}
			for _, id := range ids {
				if _, err := n.s.EnqueueTx(ctx, tx, event(account, id)); err != nil {
					return err
				}
				rest(20)
			}
			if err := tx.Commit(ctx); err != nil {
				return err
			}
			for _, id := range ids {
				ack(account, id)
			}
			return nil
		})
	}
	for p := range 2 {
		loop("claim", func(ctx context.Context, i int) error {
			tasks, _, err := n.s.ClaimDeliveries(ctx, webhooks.Claim{Limit: 20, Lease: time.Second, Probes: 1})
			if err != nil {
				return err
			}
			rest(30)
			outcomes := []string{"deliver", "deliver", "deliver", "retry", "release", "giveup"}
			_, err = n.settle(ctx, tasks, outcomes[(i+p)%len(outcomes)])
			return err
		})
	}
	loop("redeliver", func(ctx context.Context, i int) error {
		rest(20)
		n.mu.Lock()
		var of [2]string
		if len(n.acked) > 0 {
			of = n.acked[rand.IntN(len(n.acked))]
		}
		n.mu.Unlock()
		if err := n.s.Redeliver(ctx, of[0], "wh_"+of[0], of[1], notices.Notice{}); !errors.Is(err, webhooks.ErrNotFound) {
			return err
		}
		return nil
	})
	loop("recover", func(ctx context.Context, i int) error {
		rest(100)
		account := some()
		if err := n.recover(ctx, account, "wh_"+account, fmt.Sprintf("rec_%s_%d", name, i)); err != nil && !errors.Is(err, webhooks.ErrRecovering) {
			return err
		}
		_, err := n.s.AdvanceRecovery(ctx, 50)
		return err
	})
	loop("probe", func(ctx context.Context, i int) error {
		rest(50)
		account := some()
		return n.s.Probe(ctx, account, "wh_"+account)
	})
	loop("update", func(ctx context.Context, i int) error {
		rest(20)
		account := some()
		_, err := n.s.UpdateWebhook(ctx, account, "wh_"+account, func(w *webhooks.Webhook, _ *notices.Notice) error { w.BalanceThreshold++; return nil })
		return err
	})
	loop("key", func(ctx context.Context, i int) error {
		rest(10)
		return n.key(ctx, some(), fmt.Sprintf("key_%s_%d", name, i))
	})
	loop("delete", func(ctx context.Context, i int) error {
		rest(20)
		account := fmt.Sprintf("gone_%s_%d", name, i%10)
		id := fmt.Sprintf("wh_%s_%d", account, i)
		if err := n.create(ctx, account, id); err != nil {
			return err
		}
		if err := n.batch(ctx, account, id, 5); err != nil {
			return err
		}
		return n.s.DeleteWebhook(ctx, account, id, nil, notices.Notice{})
	})
	loop("erase", func(ctx context.Context, i int) error {
		rest(200)
		account := fmt.Sprintf("erased_%s_%d", name, i)
		if err := n.create(ctx, account, "wh_"+account); err != nil {
			return err
		}
		if err := n.batch(ctx, account, account, 5); err != nil {
			return err
		}
		return n.erase(ctx, account)
	})
	loop("import", func(ctx context.Context, i int) error {
		rest(100)
		account := fmt.Sprintf("imported_%s_%d", name, i)
		if err := n.create(ctx, account, "wh_"+account); err != nil {
			return err
		}
		if err := n.load(ctx, account, "wh_"+account, account+"_", 20, time.Minute); err != nil {
			return err
		}
		for j := range 20 {
			ack(account, fmt.Sprint(account, "_", j))
		}
		return nil
	})
	loop("purge", func(ctx context.Context, i int) error {
		rest(100)
		before := time.Now().Add(-time.Hour)
		_, err := n.s.Purge(ctx, webhooks.Purge{Payloads: before, Attempts: before, EventIDs: before, DedupKeys: before, Notices: before, Limit: 1000})
		return err
	})
}
