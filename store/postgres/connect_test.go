package postgres_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// openAt opens a store that connects through a relay.
func openAt(t testing.TB, r *relay, more string, options ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), r.dsn(t, more), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Connections of Open set application_name, unless the host's connection string does.
func TestApplicationName(t *testing.T) {
	option := inSchema(t)
	for more, want := range map[string]string{"": "storageapi", "application_name=billing": "billing"} {
		s := openAt(t, newRelay(t), more, option)
		var name string
		if err := s.Pool().QueryRow(t.Context(), `select current_setting('application_name')`).Scan(&name); err != nil || name != want {
			t.Errorf("application_name = %q, %v, want %q", name, err, want)
		}
	}
}

// Listening uses one of the pool's connections. With a pool of one connection the node does not
// listen.
func TestListener_SingleConnectionPool_DoesNotListen(t *testing.T) {
	for most := int32(1); most <= 3; most++ {
		name := fmt.Sprintf("counted %d", most)
		s := openAt(t, newRelay(t), fmt.Sprintf("pool_max_conns=%d application_name='%s'", most, name), inSchema(t))
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		listens := make(chan struct{}, 9)
		group.Go(func() { s.Listen(ctx, func() { listens <- struct{}{} }) })
		if most > 1 {
			<-listens
		}
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				if _, err := s.Now(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		var n int32
		if err := pool(t).QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name = $1`, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if total := s.Pool().Stat().TotalConns(); n > most || total > most || most > 1 && n < 2 {
			t.Errorf("with pool_max_conns=%d there are %d connections, and the pool knows of %d", most, n, total)
		}
		if most == 3 {
			if err := s.Close(); err != nil { // while it listens
				t.Error(err)
			}
		}
		cancel()
		group.Wait()
	}
}

// If the listening connection goes silent, the node listens on another.
func TestListener_ConnectionGoesSilent_IsReplaced(t *testing.T) {
	r, option := newRelay(t), inSchema(t)
	s := openAt(t, r, "", option)
	s.AskEvery(50 * time.Millisecond)
	listens := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Listen(ctx, func() { listens <- struct{}{} }) })
	defer group.Wait()
	defer cancel()
	<-listens
	time.Sleep(200 * time.Millisecond)
	if n := len(listens); n > 0 {
		t.Errorf("on a connection that works it began to listen %d times more", n)
	}
	r.silence(false)
	select {
	case <-listens:
	case <-time.After(20 * time.Second):
		t.Error("it does not listen again")
	}
}

// If the server does not answer, calls without a deadline return within about ten seconds. The
// error must not claim that nothing happened.
func TestSilentServer_CallsReturnInTenSeconds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	r, option := newRelay(t), inSchema(t)
	s := openAt(t, r, "pool_max_conns=30", option)
	endpoints(t, s, 1)
	enqueue := func(id string) error {
		_, err := s.Enqueue(context.Background(), driver.EncodedEvent{ID: id, Account: "acct_wh_000000", Type: alerts.TypeBalanceLow})
		return err
	}
	calls := map[string]func() error{
		"Enqueue":         func() error { return enqueue("a") },
		"Enqueue another": func() error { return enqueue("b") },
		"Enqueue a third": func() error { return enqueue("c") },
		"UpdateWebhook": func() error {
			_, err := s.UpdateWebhook(context.Background(), "acct_wh_000000", "wh_000000", func(*driver.Webhook, *audit.Entry) error { return nil })
			return err
		},
		"KeyByHash": func() error { _, err := s.KeyByHash(context.Background(), hashNo(1)); return err },
		"RecordKeyUse": func() error {
			return s.RecordKeyUse(context.Background(), []driver.KeyUse{{Account: "a", ID: "b", At: time.Now()}})
		},
		"Claim": func() error {
			for begun := time.Now(); ; {
				_, err := storetest.WorkerOf(s).Claim(context.Background(), 9)
				if err != nil || time.Since(begun) > 10*time.Second {
					return err
				}
			}
		},
		"Unreported": func() error { _, err := s.Unreported(context.Background(), ""); return err },
		"New":        func() error { _, err := postgres.New(context.Background(), s.Pool(), option); return err },
		"Open":       func() error { _, err := postgres.Open(context.Background(), r.dsn(t, ""), option); return err },
		"Migrate":    func() error { return postgres.Migrate(context.Background(), s.Pool(), option) },
	}
	r.silence(true)
	var group sync.WaitGroup
	for name, call := range calls {
		group.Go(func() {
			begun := time.Now()
			err := call()
			if took := time.Since(begun); err == nil || took > 14*time.Second {
				t.Errorf("%s = %v after %v, want an error within ten seconds", name, err, took)
			}
			if name != "New" && name != "Open" && name != "Migrate" && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
				t.Errorf("%s = %v, although its context has not ended", name, err)
			}
		})
	}
	group.Wait()
	r.open()
	if err := enqueue("d"); err != nil {
		t.Errorf("once connections pass again: %v", err)
	}
}

// A node continues to deliver after all its connections went silent, 20 of them inside
// transactions.
func TestDeliver_ConnectionsGoSilent_Continues(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes twenty seconds")
	}
	const hooks = 20
	r, option := newRelay(t), inSchema(t)
	s := openAt(t, r, fmt.Sprintf("pool_max_conns=%d", hooks+4), option)
	arrived := make(chan string, 100)
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.Header.Get("Webhook-Id") }))
	defer receiver.Close()
	service, err := webhooks.New(s, webhooks.Config{
		Events:   alerts.Events(),
		Outbound: webhooks.Outbound{RootCAs: rootsOf(receiver), AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var hook [hooks]driver.Webhook
	for i := range hook {
		if hook[i], err = service.Create(t.Context(), fmt.Sprint("acct_", i), webhooks.CreateParams{URL: receiver.URL, Events: alerts.EventTypes()}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := service.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer group.Wait()
	defer cancel()
	deliver := func(account string) { // on another node, which does not deliver
		other, err := webhooks.New(open(t, option), webhooks.Config{Events: alerts.Events()})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Publish(t.Context(), lowBalance(account, "")); err != nil {
			t.Fatal(err)
		}
	}
	deliver("acct_0")
	<-arrived

	var inside sync.WaitGroup
	silent := make(chan struct{})
	for _, w := range hook {
		inside.Add(1)
		first := sync.OnceFunc(inside.Done)
		group.Go(func() {
			_, err := s.UpdateWebhook(context.Background(), w.Account, w.ID, func(*driver.Webhook, *audit.Entry) error {
				first()
				<-silent
				return nil
			})
			if err == nil {
				t.Error("UpdateWebhook = nil without an answer")
			}
		})
	}
	inside.Wait()
	r.silence(false)
	close(silent)
	begun := time.Now()
	for i := range hook {
		deliver(fmt.Sprint("acct_", i))
	}
	for n := range hook {
		select {
		case <-arrived:
		case <-time.After(30*time.Second - time.Since(begun)):
			t.Fatalf("%d of %d events have arrived in 30 s", n, hooks)
		}
	}
	t.Logf("all have arrived after %v", time.Since(begun))
}

func rootsOf(receiver *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(receiver.Certificate())
	return roots
}
