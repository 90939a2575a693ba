package postgres_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/webhooks"
)

// nodeEnv, if set to a connection string, makes the test binary run as a node. rootsEnv has the
// receiver's certificate.
const nodeEnv, rootsEnv = "STORAGEAPI_TEST_NODE", "STORAGEAPI_TEST_ROOTS"

// accounts is the number of accounts, each with one webhook.
const accounts = 20

// runNode delivers until the process is killed, or its standard input ends.
func runNode(dsn string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
	}
	s, err := postgres.Open(ctx, dsn)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(os.Getenv(rootsEnv)))
	service, err := webhooks.New(s, webhooks.Config{
		Events: alerts.Events(),
		Outbound: webhooks.Outbound{
			RootCAs: roots, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Timeout: 2 * time.Second,
		}, Concurrency: webhooks.Concurrency{PerWebhook: nodeCap},
		Retry:  webhooks.RetryPolicy{Delays: []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, time.Second}},
		Logger: slog.New(slog.DiscardHandler), // the test takes the database down, and checks only deliveries
	})
	check(err)
	reports, err := alerts.New(s, service, alerts.Config{})
	check(err)
	go meter(ctx, reports, func(int) {})
	check(service.Run(ctx))
	check(s.Close())
}

// metered is the number of further accounts, which use up their bandwidth at different times. Each
// node then reports the usage.
const metered = 60

func meteredAccount(i int) string { return fmt.Sprint("metered_", i) }

// meter reports the usage of one metered account after another, of each for 200 ms. It calls told
// after each acknowledged report.
func meter(ctx context.Context, service *alerts.AlertService, told func(i int)) {
	for ctx.Err() == nil {
		i := int(time.Now().UnixMilli()/200) % metered
		if err := service.ReportBandwidth(ctx, meteredAccount(i), 100, 100, "2020-11"); err == nil {
			told(i)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// nodeCap is the nodes' PerWebhook setting.
const nodeCap = 8

// A node is a process that delivers.
type node struct {
	process *exec.Cmd
	stdin   io.Closer
}

func startNode(t *testing.T, dsn, roots string) *node {
	t.Helper()
	return startNodeOf(t, os.Args[0], dsn, roots)
}

// startNodeOf starts a node from another test binary.
func startNodeOf(t *testing.T, binary, dsn, roots string) *node {
	t.Helper()
	n := &node{process: exec.Command(binary)}
	n.process.Env = append(os.Environ(), nodeEnv+"="+dsn, rootsEnv+"="+roots)
	n.process.Stderr = os.Stderr
	stdin, err := n.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.stdin = stdin
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	return n
}

// kill ends the node as a crash would.
func (n *node) kill() {
	_ = n.process.Process.Kill()
	_ = n.process.Wait()
}

// A ledger records the acknowledged events and the events that arrived.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[string]bool
	arrived      map[string]int
	under        map[string]int // running requests by path
	most         map[string]int
	dead         int // requests to the receiver that is down

	reported map[string]bool           // paths of accounts whose usage was reported
	alerts   map[string]map[string]int // requests by path and type, and by event
}

// newLedger returns a ledger, a receiver that fills the ledger, and the receiver's certificate as
// PEM.
func newLedger(t *testing.T) (l *ledger, receiver *httptest.Server, roots string) {
	t.Helper()
	l = &ledger{
		acknowledged: map[string]bool{}, arrived: map[string]int{}, under: map[string]int{}, most: map[string]int{},
		reported: map[string]bool{}, alerts: map[string]map[string]int{},
	}
	receiver = httptest.NewTLSServer(l)
	t.Cleanup(receiver.Close)
	return l, receiver, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))
}

// load publishes until stop is called; stop waits for calls that are still publishing.
func (l *ledger) load(service *webhooks.WebhookService, reports *alerts.AlertService) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var publishers sync.WaitGroup
	publishers.Go(func() {
		meter(ctx, reports, func(i int) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.reported["/"+meteredAccount(i)] = true
		})
	})
	for i := range 4 {
		publishers.Go(func() {
			for j := i; ctx.Err() == nil; j += 4 {
				l.publish(service, lowBalance(fmt.Sprint("acct_", j%accounts), fmt.Sprint("evt_", j)))
				time.Sleep(time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		publishers.Wait()
	}
}

// more waits until the usage of n more accounts has been reported. This takes a second for every
// five accounts, or longer on a busy machine.
func (l *ledger) more(t *testing.T, n int) {
	t.Helper()
	reported := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.reported)
	}
	before := reported()
	for end := time.Now().Add(60 * time.Second); reported() < before+n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the use of %d more accounts was reported in a minute, want %d", reported()-before, n)
		}
	}
}

// await waits until all acknowledged events have arrived.
func (l *ledger) await(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if lost := l.lost(); len(lost) == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d events that were acknowledged have not arrived, such as %s", len(lost), lost[0])
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	twice := 0
	for _, n := range l.arrived {
		twice += n - 1
	}
	for of, events := range l.alerts {
		if len(events) != 1 {
			t.Errorf("%s was told by %d events, want one", of, len(events))
		}
	}
	t.Logf("%d events acknowledged, all arrived, %d more than once; %d requests to the receiver that is down; %d alerts, each told once",
		len(l.acknowledged), twice, l.dead, len(l.alerts))
}

// alertsOf are the types of the events that are sent when an account uses up its bandwidth.
var alertsOf = []driver.EventType{alerts.TypeBandwidthLimitApproaching, alerts.TypeBandwidthLimitReached}

// alertName returns the name of an alert: the path to which it is sent, and its event type.
func alertName(path string, of driver.EventType) string { return path + " " + string(of) }

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct {
		ID   string           `json:"id"`
		Type driver.EventType `json:"type"`
	}
	err := json.NewDecoder(r.Body).Decode(&event)
	l.mu.Lock()
	if r.URL.Path == "/down" {
		l.dead++
	} else if err == nil {
		l.arrived[event.ID]++
		if name := alertName(r.URL.Path, event.Type); slices.Contains(alertsOf, event.Type) {
			if l.alerts[name] == nil {
				l.alerts[name] = map[string]int{}
			}
			l.alerts[name][event.ID]++
		}
	}
	l.under[r.URL.Path]++
	l.most[r.URL.Path] = max(l.most[r.URL.Path], l.under[r.URL.Path])
	l.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // work
	l.mu.Lock()
	l.under[r.URL.Path]--
	l.mu.Unlock()
	if r.URL.Path == "/down" {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// replicated starts a server and its standby.
func replicated(t *testing.T) (primary, standby *cluster.Cluster) {
	t.Helper()
	primary, err := cluster.Start()
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(primary.Stop)
	if standby, err = primary.Standby(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	return primary, standby
}

// TestFailover kills the primary under load and promotes its standby.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	primary, standby := replicated(t)
	dsn := primary.DSN("postgres", standby) + " pool_max_conns=12"

	l, receiver, roots := newLedger(t)
	s, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events(), Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := alerts.New(s, service, alerts.Config{})
	if err != nil {
		t.Fatal(err)
	}
	createAll(t, service, receiver.URL)
	startNode(t, dsn, roots)
	startNode(t, dsn, roots)
	stop := l.load(service, reports)
	l.more(t, 8)
	primary.Kill()
	time.Sleep(200 * time.Millisecond)
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	l.more(t, 8)
	stop()
	l.await(t)
}

// onPrimary returns a store with one webhook, on a server whose commits wait for its only standby.
func onPrimary(t *testing.T) (s *postgres.Store, primary, standby *cluster.Cluster) {
	t.Helper()
	primary, standby = replicated(t)
	s, err := postgres.Open(t.Context(), primary.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.CreateWebhook(t.Context(), newWebhook("acct", "wh"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s, primary, standby
}

// TestStandbyLost kills the only synchronous standby, so that commits wait for it. Publishers must
// soon get an error that says that the event may have been stored, as it has been here.
func TestStandbyLost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	s, primary, standby := onPrimary(t)
	enqueue := func(ctx context.Context) error {
		_, err := s.Enqueue(ctx, driver.EncodedEvent{ID: "event", Account: "acct", Type: alerts.TypeBalanceLow})
		return err
	}
	p, err := pgxpool.New(t.Context(), primary.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	standby.Kill()
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- enqueue(ctx) }()
	eventually(t, "the commit waits for the standby", func() (waits bool) {
		if err := p.QueryRow(t.Context(), `select exists (select from pg_stat_activity where wait_event = 'SyncRep')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	giveUp()
	begun := time.Now()
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Enqueue without the standby = %v, want an error that does not say that nothing happened", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("Enqueue returned after %v", took)
	}
	if err := standby.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := enqueue(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := s.EventDeliveries(t.Context(), "acct", "event")
	if err != nil || len(list) != 1 {
		t.Errorf("EventDeliveries = %d, %v, want 1", len(list), err)
	}
}

// TestCrashes kills nodes and the database under load. All acknowledged events must arrive.
func TestCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	c, err := cluster.Start()
	if err != nil {
		skip(t, err)
	}
	defer c.Stop()
	dsn := c.DSN("postgres") + " pool_max_conns=12"

	l, receiver, roots := newLedger(t)
	s, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events(), Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := alerts.New(s, service, alerts.Config{})
	if err != nil {
		t.Fatal(err)
	}
	createAll(t, service, receiver.URL)
	create(t, service, "down", receiver.URL+"/down")
	for range 50 {
		if err := service.Publish(t.Context(), lowBalance("down", "")); err != nil {
			t.Fatal(err)
		}
	}

	nodes := []*node{startNode(t, dsn, roots), startNode(t, dsn, roots), startNode(t, dsn, roots)}
	stop := l.load(service, reports)
	l.more(t, 6)
	nodes[0].kill()
	time.Sleep(500 * time.Millisecond)
	c.Kill()
	time.Sleep(300 * time.Millisecond)
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	startNode(t, dsn, roots)
	time.Sleep(time.Second)
	cutConnections(t, c.DSN("postgres"))
	time.Sleep(time.Second)
	nodes[1].kill()
	l.more(t, 4)
	stop()

	l.await(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, n := range l.most {
		// The receiver may still be handling requests of a node that was killed.
		if n > 2*nodeCap {
			t.Errorf("%s had %d requests at a time, want at most %d", path, n, nodeCap)
		}
	}
	if l.dead > 60 { // three nodes that probe independently would send far more
		t.Errorf("the receiver that is down had %d requests", l.dead)
	}
}

// createAll creates the webhooks of the accounts with events and of the metered accounts.
func createAll(t *testing.T, service *webhooks.WebhookService, url string) {
	t.Helper()
	for i := range accounts {
		create(t, service, fmt.Sprint("acct_", i), fmt.Sprint(url, "/", i))
	}
	for i := range metered {
		create(t, service, meteredAccount(i), url+"/"+meteredAccount(i))
	}
}

func create(t *testing.T, service *webhooks.WebhookService, account, url string) {
	t.Helper()
	_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: url, Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
}

// publish retries publishing an event until it is acknowledged.
func (l *ledger) publish(service *webhooks.WebhookService, event webhooks.Event) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := service.Publish(ctx, event)
		cancel()
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acknowledged[event.ID] = true
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lost returns the acknowledged events that have not arrived.
func (l *ledger) lost() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.acknowledged {
		if l.arrived[id] == 0 {
			ids = append(ids, id)
		}
	}
	for path := range l.reported {
		for _, of := range alertsOf {
			if name := alertName(path, of); l.alerts[name] == nil {
				ids = append(ids, name)
			}
		}
	}
	return ids
}

// cutConnections ends all other connections to the database.
func cutConnections(t *testing.T, dsn string) {
	t.Helper()
	p, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'`); err != nil {
		t.Fatal(err)
	}
}
