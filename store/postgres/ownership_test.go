package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

const shards = 256

// testLasts is how long test nodes stay alive without a heartbeat.
const testLasts = 3 * time.Second

// A shardNode is a node that owns shards without deliveries.
type shardNode struct {
	postgres.Owning
	store *postgres.Store
	test  *testing.T
	all   *shardNodes

	mu      sync.Mutex
	state   map[int16]string // loaded, paused
	busy    map[int16]int
	loading func(ctx context.Context) error // if not nil, called for each load
}

// shardNodes are the nodes of a schema.
type shardNodes struct {
	name    string
	pool    *pgxpool.Pool
	options []postgres.Option
	mu      sync.Mutex
	serving map[int16]*shardNode
	removed map[int64]bool
}

func newShardNodes(t *testing.T, options ...postgres.Option) *shardNodes {
	t.Helper()
	name, option := migratedSchema(t)
	config := pool(t).Config()
	config.MaxConns = 16
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return shardNodesOf(name, p, append(options, option)...)
}

func shardNodesOf(schema string, p *pgxpool.Pool, options ...postgres.Option) *shardNodes {
	return &shardNodes{name: schema, pool: p, options: options, serving: make(map[int16]*shardNode), removed: make(map[int64]bool)}
}

// node returns a new node that has not joined.
func (a *shardNodes) node(t *testing.T) *shardNode {
	t.Helper()
	return a.on(t, a.open(t), testLasts)
}

// pair returns two nodes that own their shares.
func (a *shardNodes) pair(t *testing.T) (one, two *shardNode) {
	t.Helper()
	one, two = a.node(t), a.node(t)
	one.join()
	two.join()
	a.awaitBalance(t, one, two)
	return one, two
}

func (a *shardNodes) open(t *testing.T) *postgres.Store {
	t.Helper()
	s, err := postgres.New(t.Context(), a.pool, a.options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// listening returns a node that listens for notifications.
func (a *shardNodes) listening(t *testing.T) *shardNode {
	t.Helper()
	n := a.node(t)
	listens(t, n.store)
	return n
}

func (a *shardNodes) on(t *testing.T, s *postgres.Store, lasts time.Duration) *shardNode {
	n := &shardNode{store: s, test: t, all: a, state: make(map[int16]string), busy: make(map[int16]int)}
	n.Owning = s.Owning(postgres.Queues{Load: n.load, Pause: n.pause, UnderWay: n.underWay, Unload: n.unload}, lasts)
	return n
}

func (n *shardNode) load(ctx context.Context, list []int16) error {
	n.mu.Lock()
	loading := n.loading
	n.mu.Unlock()
	if loading != nil {
		if err := loading(ctx); err != nil {
			return err
		}
	}
	n.all.mu.Lock()
	for _, shard := range list {
		if other := n.all.serving[shard]; other != nil && other != n {
			if node := other.Node(); node != 0 && !n.all.removed[node] {
				n.test.Errorf("shard %d is loaded by %x while %x serves it", shard, n.Newest(), node)
			}
		}
		n.all.serving[shard] = n
	}
	n.all.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, shard := range list {
		n.state[shard] = "loaded"
	}
	return nil
}

func (n *shardNode) pause(list []int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, shard := range list {
		n.state[shard] = "paused"
	}
	n.leave(list)
}

// leave records that the node no longer serves the shards.
func (n *shardNode) leave(list []int16) {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	for _, shard := range list {
		if n.all.serving[shard] == n {
			delete(n.all.serving, shard)
		}
	}
}

func (n *shardNode) underWay(shard int16) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy[shard]
}

func (n *shardNode) unload(list []int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, shard := range list {
		delete(n.state, shard)
	}
	n.leave(list)
}

// join joins, or fails the test.
func (n *shardNode) join() {
	n.test.Helper()
	if err := n.Join(n.test.Context()); err != nil {
		n.test.Fatal(err)
	}
}

// close shuts a node down gracefully.
func (n *shardNode) close() {
	n.test.Helper()
	if err := n.store.Close(); err != nil {
		n.test.Fatal(err)
	}
	n.unload(n.served())
}

// served returns the shards that the node serves.
func (n *shardNode) served() (list []int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for shard, state := range n.state {
		if state == "loaded" {
			list = append(list, shard)
		}
	}
	slices.Sort(list)
	return list
}

// owned returns the shards of each node according to the table shard_owners.
func (a *shardNodes) owned(t *testing.T) map[int64][]int16 {
	t.Helper()
	rows, err := a.pool.Query(t.Context(), `select node, array_agg(shard order by shard) from `+quoted(a.name)+`.shard_owners group by node`)
	if err != nil {
		t.Fatal(err)
	}
	of := make(map[int64][]int16)
	for rows.Next() {
		var node int64
		var list []int16
		if err := rows.Scan(&node, &list); err != nil {
			t.Fatal(err)
		}
		of[node] = list
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return of
}

// exec runs a statement, in which it replaces %s by the schema.
func (a *shardNodes) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := a.pool.Exec(t.Context(), fmt.Sprintf(sql, quoted(a.name)), args...); err != nil {
		t.Fatal(err)
	}
}

// remove removes the row of a live node. If name is set, it also removes the node from the table of
// owners.
func (a *shardNodes) remove(t *testing.T, node int64, name bool) {
	t.Helper()
	a.mu.Lock()
	a.removed[node] = true
	a.mu.Unlock()
	a.exec(t, `
		with late as (delete from %[1]s.heartbeats where node = $1 returning node), gone as (delete from %[1]s.nodes where node = $1)
		update %[1]s.shard_owners set node = 0 where node = $1 and $2`, node, name)
}

// epochs returns the number of times that shards got a new owner.
func (a *shardNodes) epochs(t *testing.T) (n int) {
	t.Helper()
	if err := a.pool.QueryRow(t.Context(), `select sum(epoch)::integer from `+quoted(a.name)+`.shard_owners`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// balanced reports whether each node serves its share, and exactly the shards that it owns
// according to the table.
func (a *shardNodes) balanced(t *testing.T, nodes ...*shardNode) bool {
	t.Helper()
	of := a.owned(t)
	for _, n := range nodes {
		served := n.served()
		if len(served)/(shards/len(nodes)) != 1 || len(served) > shards/len(nodes)+1 || !slices.Equal(served, of[n.Node()]) {
			return false
		}
	}
	return len(of) == len(nodes)
}

// awaitBalance waits until the nodes are balanced, and returns how long that took.
func (a *shardNodes) awaitBalance(t *testing.T, nodes ...*shardNode) time.Duration {
	t.Helper()
	begun := time.Now()
	for !a.balanced(t, nodes...) {
		if time.Since(begun) > 20*time.Second {
			for node, list := range a.owned(t) {
				t.Logf("%x owns %d by the table", node, len(list))
			}
			for _, n := range nodes {
				t.Logf("%x (now %x) serves %d", n.Newest(), n.Node(), len(n.served()))
			}
			t.Fatal("the nodes are not balanced")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begun)
}

// Soon after a node joins or leaves, all nodes have equal shares. From then on no shard moves.
func TestNodes_JoinAndLeave_BalanceShards(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	var nodes []*shardNode
	for range 5 {
		n := a.listening(t)
		n.join()
		if n.Node() == 0 {
			t.Fatal("a node that has joined is none")
		}
		nodes = append(nodes, n)
		if took := a.awaitBalance(t, nodes...); took > 10*time.Second {
			t.Errorf("%d nodes were balanced after %v", len(nodes), took)
		} else {
			t.Logf("%d nodes were balanced after %v", len(nodes), took)
		}
	}
	before := a.epochs(t)
	beats := func() (n int) {
		if err := a.pool.QueryRow(t.Context(), `select min(beat)::integer from `+quoted(a.name)+`.heartbeats`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := beats()
	eventually(t, "there are some more heartbeats", func() bool { return beats() >= first+3 })
	if n := a.epochs(t) - before; n > 0 {
		t.Errorf("%d shards moved between the same nodes", n)
	}
	for len(nodes) > 1 {
		nodes[0].close()
		nodes = nodes[1:]
		if took := a.awaitBalance(t, nodes...); took >= testLasts { // a dead node keeps its shards for testLasts
			t.Errorf("%d nodes were balanced %v after another ended", len(nodes), took)
		} else {
			t.Logf("%d nodes were balanced %v after another ended", len(nodes), took)
		}
	}
	nodes[0].close()
	if of := a.owned(t); len(of[0]) != shards {
		t.Errorf("%d shards are free after the last node ended", len(of[0]))
	}
	if err := nodes[0].Join(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("join after Close = %v", err)
	}
}

// At its next heartbeat, a node that only polls finds the shards that other nodes have released.
func TestNodes_PollOnly_BalanceShards(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t, postgres.PollOnly())
	one, two := a.pair(t)
	one.close()
	if took := a.awaitBalance(t, two); took > testLasts {
		t.Errorf("shards moved %v after their node ended", took)
	}
}

// Nodes that start at the same time agree on their shares, and never serve the same shard.
func TestNodes_JoinConcurrently_ServeEachShardOnce(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	var nodes []*shardNode
	var group sync.WaitGroup
	for range 5 {
		n := a.node(t)
		nodes = append(nodes, n)
		group.Go(n.join)
	}
	group.Wait()
	t.Log("balanced after", a.awaitBalance(t, nodes...))
}

// The shards of a killed node move to the others within 10 s, but not while the node may still be
// alive.
func TestNode_Killed_ShardsMoveWithinTenSeconds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	a := newShardNodes(t)
	killed, other := a.on(t, a.open(t), 6*time.Second), a.on(t, a.open(t), 6*time.Second)
	killed.join()
	other.join()
	a.awaitBalance(t, killed, other)
	killed.Kill()
	took := a.awaitBalance(t, other)
	t.Log("moved after", took)
	if took > 10*time.Second || took < 4*time.Second {
		t.Errorf("its shards moved after %v", took)
	}
}

// A dead node is detected even if the server's clock was set back.
func TestNode_KilledBeforeClockSetBack_IsDetected(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	killed, other := a.pair(t)
	node := killed.Node()
	killed.Kill()
	a.exec(t, `update %s.heartbeats set until = until + interval '1 hour' where node = $1`, node)
	if took := a.awaitBalance(t, other); took > 2*testLasts {
		t.Errorf("its shards moved after %v", took)
	}
}

// Live nodes are not considered dead if the server's clock is set ahead.
func TestClock_ServerJumpsAhead_NodesStayAlive(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	one, other := a.pair(t)
	beats := func() (n int) {
		if err := a.pool.QueryRow(t.Context(), `select min(beat)::integer from `+quoted(a.name)+`.heartbeats`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, second, end := one.Node(), other.Node(), beats()+4
	for beats() >= 1 && beats() < end {
		a.exec(t, `update %s.heartbeats set until = now() - interval '1 hour'`)
		time.Sleep(10 * time.Millisecond)
	}
	if one.Node() != first || other.Node() != second {
		t.Errorf("the nodes were %x and %x and are %x and %x", first, second, one.Node(), other.Node())
	}
}

// A node that was removed as dead unloads all its shards, and joins again with a new term.
func TestNode_Removed_UnloadsAndRejoins(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	one, other := a.pair(t)
	for i := range 2 {
		was := one.Node()
		a.remove(t, was, i > 0)
		eventually(t, "another term joins", func() bool { return one.Node() != 0 && one.Node() != was })
		if one.Newest()>>12 != was>>12 {
			t.Errorf("its base was %x and is %x", was>>12, one.Newest()>>12)
		}
		a.awaitBalance(t, one, other)
	}
	was := one.Node()
	one.Gone(other.Node()) // another node's term
	if one.Node() != was {
		t.Error("what another has lost ends this node")
	}
	one.Gone(was) // but its row still exists
	eventually(t, "the node finds that it is alive", func() bool { return one.Node() == was })
}

// A node stays alive even if it takes longer than testLasts to load shards. A claim whose context
// ends meanwhile returns.
func TestLoad_TakesLong_NodeStaysAlive(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	n := a.node(t)
	loading, loaded := make(chan struct{}, 99), make(chan struct{})
	n.loading = func(ctx context.Context) error {
		loading <- struct{}{}
		<-loaded
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Join(ctx) }()
	<-loading
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("join = %v", err)
	}
	begun, first := time.Now(), n.Node()
	eventually(t, "it lasts", func() bool { return time.Since(begun) > testLasts*5/4 })
	if n.Node() != first || first == 0 {
		t.Errorf("the node was %x and is %x", first, n.Node())
	}
	go func() { ended <- n.Join(t.Context()) }()
	close(loaded)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	a.awaitBalance(t, n)
}

// A node releases shards that it cannot load.
func TestLoad_Fails_ShardIsReleased(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	n, other := a.node(t), a.node(t)
	broken := errors.New("broken")
	n.loading = func(context.Context) error { return broken }
	if err := n.Join(t.Context()); !errors.Is(err, broken) {
		t.Errorf("join = %v", err)
	}
	other.join()
	eventually(t, "another has what the node does not load", func() bool { return len(other.served()) > 0 })
	if len(n.served()) > 0 {
		t.Error("it serves what it did not load")
	}
	n.mu.Lock()
	n.loading = nil
	n.mu.Unlock()
	a.awaitBalance(t, n, other)
	n.mu.Lock()
	n.loading = func(context.Context) error { return broken }
	n.mu.Unlock()
	n.join()
	other.close()
	eventually(t, "claims learn of it", func() bool { return errors.Is(n.Join(t.Context()), broken) })
	n.mu.Lock()
	n.loading = nil
	n.mu.Unlock()
	a.awaitBalance(t, n)
	eventually(t, "claims learn that it is over", func() bool { return n.Join(t.Context()) == nil })
}

// The test keeps the change feed locked until the node has joined.
func TestJoin_TrimIsBlocked_DoesNotWait(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	tx, err := a.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table `+quoted(a.name)+`.changes`); err != nil {
		t.Fatal(err)
	}
	n := a.on(t, a.open(t), time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.Join(ctx); err != nil {
		t.Errorf("Join = %v, want nil", err)
	}
}

// A node first releases shards without attempts in flight. It releases the others once their
// attempts have ended, or after 2 s.
func TestRebalance_AttemptsInFlight_ReleasesIdleShardsFirst(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	one, two, three := a.listening(t), a.listening(t), a.listening(t)
	one.join()
	a.awaitBalance(t, one)
	for shard := range int16(shards / 2) {
		one.busy[2*shard] = 1
	}
	two.join()
	if took := a.awaitBalance(t, one, two); took >= 2*time.Second { // shards with attempts in flight wait for 2 s
		t.Errorf("shards without work moved after %v", took)
	}
	for _, shard := range one.served() {
		if shard%2 == 1 {
			t.Errorf("shard %d has nothing in flight and was not left", shard)
		}
	}
	begun := time.Now()
	three.join()
	a.awaitBalance(t, one, two, three)
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("shards with work moved after %v", took)
	}
}

// Soon after the first call to OwnerOf, a node that does not deliver knows the owners.
func TestOwnerOf_NodeDoesNotDeliver_KnowsOwners(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	n, asks := a.node(t), a.node(t)
	n.join()
	eventually(t, "the owner is known", func() bool { return asks.OwnerOf(7) == n.Node() })
	n.close()
	eventually(t, "it is known to have left", func() bool { return asks.OwnerOf(7) == 0 })
}

// A node can release shards even if a continuous series of settlements locks its row. Settlements
// that still run on the server after their connection was lost delay the release.
func TestRebalance_ContinuousSettlements_ReleasesShards(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	one, two := a.listening(t), a.listening(t)
	one.join()
	node := one.Node()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	for range 8 {
		group.Go(func() {
			conn, err := a.pool.Acquire(ctx)
			if err != nil {
				return
			}
			defer conn.Release()
			for ctx.Err() == nil {
				one.Settling().RLock()
				_, _ = conn.Exec(context.Background(), fmt.Sprintf(`begin; select from %s.nodes where node = %d for key share; select pg_sleep(0.005); commit`, quoted(a.name), node))
				one.Settling().RUnlock()
			}
		})
	}
	two.join()
	if took := a.awaitBalance(t, one, two); took > 10*time.Second {
		t.Errorf("shards moved after %v", took)
	}
	cancel()
	group.Wait()
	tx, err := a.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from `+quoted(a.name)+`.nodes where node = $1 for key share`, node); err != nil {
		t.Fatal(err)
	}
	three := a.listening(t)
	three.join()
	eventually(t, "two leaves its part", func() bool { return len(two.served()) <= shards/3+1 })
	if len(a.owned(t)[node]) != shards/2 {
		t.Error("the node left shards while they were being settled")
	}
	_ = tx.Rollback(t.Context())
	a.awaitBalance(t, one, two, three)
	if one.Node() != node {
		t.Error("the node was over meanwhile")
	}
}

// A node that cannot reach the database stops claiming before other nodes may take its shards, and
// joins again once it is reconnected.
func TestNode_CutOff_StopsClaimingAndRejoins(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	s, w := wired(t, "cut off owner", a.options...)
	cut, other := a.on(t, s, testLasts), a.node(t)
	cut.join()
	other.join()
	a.awaitBalance(t, cut, other)
	was := cut.Node()
	begun := time.Now()
	w.cutAfter(0)
	w.cut()
	eventually(t, "it is cut off", func() bool { return cut.Node() == 0 })
	if took := time.Since(begun); took > testLasts+time.Second {
		t.Errorf("it knew after %v", took)
	}
	a.awaitBalance(t, other) // the other node then serves all shards
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := cut.Join(ctx); err == nil {
		t.Error("a node that is cut off joined")
	}
	w.mend()
	eventually(t, "it is back", func() bool { return cut.Join(t.Context()) == nil })
	if cut.Node() == was {
		t.Error("it is the same node")
	}
	a.awaitBalance(t, cut, other)
}

// A node that cannot reach the database closes within a short time.
func TestClose_NodeCutOff_ReturnsSoon(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	s, w := wired(t, "cut off, closes", a.options...)
	n := a.on(t, s, testLasts)
	n.join()
	w.cut()
	begun := time.Now()
	n.close()
	if took := time.Since(begun); took > 2*testLasts {
		t.Errorf("Close took %v", took)
	}
}

// A node whose pool has a single connection can own shards.
func TestOwnership_SingleConnection_Works(t *testing.T) {
	t.Parallel()
	a := newShardNodes(t)
	config := pool(t).Config()
	config.MaxConns = 1
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := postgres.New(t.Context(), p, a.options...)
	if err != nil {
		t.Fatal(err)
	}
	n, other := a.on(t, s, testLasts), a.node(t)
	n.join()
	other.join()
	a.awaitBalance(t, n, other)
	n.close()
	a.awaitBalance(t, other)
}

// A restarted server may have lost its last commits. So after a restart all nodes load their shards
// again, in new terms.
func TestOwnership_ServerRestarts_NodesReload(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a server")
	}
	p, c := migrated(t, "fsync=off")
	a := shardNodesOf(postgres.DefaultSchema, p)
	one, two := a.pair(t)
	first, second := one.Node(), two.Node()
	c.Kill()
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	a.removed[first], a.removed[second] = true, true // one node may take shards before the other knows that it has lost them
	for was, n := range map[int64]*shardNode{first: one, second: two} {
		eventually(t, "another term joins", func() bool { return n.Join(t.Context()) == nil && n.Node() != was })
	}
	a.awaitBalance(t, one, two)
}

// ownerEnv, if set to a connection string, makes the test binary run as a node that owns shards.
const ownerEnv = "STORAGEAPI_TEST_OWNER"

// runOwner owns shards until standard input ends, and prints each term in which it may claim.
func runOwner(dsn string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	s, err := postgres.Open(context.Background(), dsn)
	if err != nil {
		fmt.Fprintln(os.Stderr, "owner:", err)
		os.Exit(1)
	}
	none := func([]int16) {}
	owning := s.Owning(postgres.Queues{
		Load: func(context.Context, []int16) error { return nil }, Pause: none, Unload: none, UnderWay: func(int16) int { return 0 },
	}, 6*time.Second)
	for was := int64(0); ; time.Sleep(10 * time.Millisecond) {
		node := owning.Node()
		if node != was {
			fmt.Println(node)
		}
		was = node
		_ = owning.Join(context.Background())
	}
}

// No matter which of the server's answers is lost, the node finally serves the shards that it owns
// according to the table.
func TestOwnership_AnyAnswerLost_ShardsAreServed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	var group sync.WaitGroup
	defer group.Wait()
	for flight := 1; flight <= 14; flight++ {
		a := newShardNodes(t)
		s, w := wired(t, fmt.Sprint("lost answer ", flight), a.options...)
		n, other := a.on(t, s, testLasts/2), a.node(t)
		group.Go(func() {
			w.cutAfter(flight)
			for n.Join(t.Context()) == nil && !w.silent() {
				time.Sleep(10 * time.Millisecond)
			}
			w.mend()
			eventually(t, "it joins", func() bool { return n.Join(t.Context()) == nil })
			w.cutAfter(flight)
			other.join()
			eventually(t, "it is cut off", w.silent)
			w.mend()
			a.awaitBalance(t, n, other)
		})
	}
}

// Nodes join, leave, die and are removed at random. Two nodes never serve the same shard at the
// same time, and in the end each node has its share.
func TestOwnership_RandomEvents_NoShardIsServedTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	a := newShardNodes(t)
	var nodes []*shardNode
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(time.Duration(rand.Int64N(int64(300 * time.Millisecond)))) {
		at := rand.IntN(len(nodes) + 1)
		switch do := rand.IntN(4); {
		case len(nodes) < 2 || do == 0 && len(nodes) < 6:
			n := a.node(t)
			n.join()
			nodes = append(nodes, n)
		case at == len(nodes):
		case do == 1:
			nodes[at].close()
			nodes = slices.Delete(nodes, at, at+1)
		case do == 2:
			nodes[at].Kill()
			nodes = slices.Delete(nodes, at, at+1)
		case do == 3:
			a.remove(t, nodes[at].Newest(), rand.IntN(2) > 0)
			nodes[at].Gone(nodes[at].Newest())
		}
	}
	for _, n := range nodes {
		eventually(t, "it joins", func() bool { return n.Join(t.Context()) == nil })
	}
	t.Log(len(nodes), "are balanced after", a.awaitBalance(t, nodes...))
}

// While nodes join and leave gracefully, each delivery is claimed once and settled once, and none
// is lost, because nodes wait for attempts in flight.
func TestDeliver_ShardsMove_SettlesEachDeliveryOnce(t *testing.T) {
	if claimed, again := deliverWhileShardsMove(t, 800, false); again > 0 {
		t.Errorf("%d of %d were claimed again", again, claimed)
	}
}

// If nodes die instead of leaving, the deliveries that they have claimed are claimed again. No
// delivery is lost or settled twice.
func TestDeliver_NodesDie_LosesNothing(t *testing.T) {
	t.Parallel()
	claimed, again := deliverWhileShardsMove(t, 600, true)
	t.Logf("%d of %d were claimed again", again, claimed)
}

// deliverWhileShardsMove delivers the given number of events. It returns the number of claims, and
// how many of them repeated an earlier claim.
func deliverWhileShardsMove(t *testing.T, events int, die bool) (claimed, again int) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	const hooks, most = 50, 4
	a := newShardNodes(t)
	publisher := a.open(t)
	endpoints(t, publisher, hooks)
	var mu sync.Mutex
	claims, settled := make(map[string]int), 0
	// work claims and settles until end is closed, and then dies or closes.
	work := func(s *postgres.Store, end <-chan struct{}) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		defer s.Close()
		for {
			select {
			case <-end:
				if die {
					s.Kill()
				}
				return
			default:
			}
			tasks, err := storetest.WorkerOf(s).Claim(ctx, 20)
			if err != nil {
				t.Error(err)
				return
			}
			var list []storetest.Settlement
			mu.Lock()
			for _, task := range tasks {
				claims[task.Event.ID]++
				list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 200}})
			}
			mu.Unlock()
			if len(tasks) == 0 {
				select {
				case <-end:
				case <-time.After(5 * time.Millisecond):
				}
				continue
			}
			time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
			select {
			case <-end:
				if die {
					s.Kill()
				}
			default:
			}
			stale, err := storetest.WorkerOf(s).Settle(ctx, list)
			if err != nil || len(stale) > 0 && !die {
				t.Errorf("settled all but %d of %d: %v", len(stale), len(list), err)
			}
			mu.Lock()
			settled += len(list) - len(stale)
			mu.Unlock()
		}
	}
	var group sync.WaitGroup
	var ends []chan struct{}
	done := make(chan struct{})
	group.Go(func() {
		defer close(done)
		for i := range events {
			event := driver.EncodedEvent{ID: fmt.Sprint("event_", i), Account: fmt.Sprintf("acct_wh_%06d", i%hooks), Type: alerts.TypeBalanceLow, Body: []byte("{}")}
			if n, err := publisher.Enqueue(t.Context(), event); n != 1 || err != nil {
				t.Errorf("Enqueue = %d, %v", n, err)
				return
			}
			if die {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	for moves := true; moves || len(ends) == 0; time.Sleep(200 * time.Millisecond) {
		if at := rand.IntN(most); at < len(ends) && moves {
			close(ends[at])
			ends = slices.Delete(ends, at, at+1)
		} else {
			end, s := make(chan struct{}), a.open(t)
			if die {
				s.Lasts(testLasts / 2)
			}
			ends = append(ends, end)
			group.Go(func() { work(s, end) })
		}
		select {
		case <-done:
			moves = false
		default:
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		n := settled
		mu.Unlock()
		if n >= events || time.Now().After(end) {
			break
		}
	}
	for _, end := range ends {
		close(end)
	}
	group.Wait()
	for _, n := range claims {
		claimed, again = claimed+n, again+n-1
	}
	if t.Logf("%d shards had new owners", a.epochs(t)); settled != events || len(claims) != events {
		t.Errorf("of %d events %d were claimed, and %d settled", events, len(claims), settled)
	}
	return claimed, again
}
