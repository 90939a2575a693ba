package webhooks_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkIsolationAtStart measures how long one healthy webhook waits for an event while
// thousands of hanging webhooks have an event each. "cold-ms" is the time from the start of a
// process with all events pending. "warm-ms" is the time from Publish, a few seconds later, when
// all webhooks get another event. The store is on disk and attempts go over TLS; the hanging
// receivers accept the connection and send nothing. Everything runs on one machine.
func BenchmarkIsolationAtStart(b *testing.B) {
	for _, c := range []startIsolation{
		{hanging: 3000, accounts: 30}, {hanging: 3000, accounts: 30, proven: true},
		{hanging: 10_000, accounts: 100}, {hanging: 10_000, accounts: 100, proven: true},
		{hanging: 3000, accounts: 3000}, {hanging: 3000, accounts: 3000, proven: true},
		{hanging: 10_000, accounts: 10_000}, {hanging: 10_000, accounts: 10_000, proven: true},
	} {
		name := fmt.Sprintf("%d hang/accounts=%d/proven=%v", c.hanging, c.accounts, c.proven)
		if testing.Short() {
			c.hanging, c.accounts = 40, min(c.accounts, 40)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c.run(b)
			}
		})
	}
}

// A startIsolation is one measurement of BenchmarkIsolationAtStart.
type startIsolation struct {
	hanging, accounts int
	proven            bool // the healthy webhook has accepted an event before

	service *webhooks.WebhookService
	arrived chan string
}

func (c startIsolation) run(b *testing.B) {
	c.arrived = make(chan string, 100)
	well := c.listen(b)
	silent := listenSilently(b)
	file, err := bolt.Open(filepath.Join(b.TempDir(), "start.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	c.restart(b, file)
	create := func(account, url string) {
		if _, err := c.service.Create(b.Context(), account, webhooks.CreateParams{URL: url, Events: onBalance}); err != nil {
			b.Error(err)
		}
	}
	create("well", well+secretPath)
	if c.proven {
		stop := start(b, c.service)
		c.await(b, c.publish(b, "well"))
		for ; ; time.Sleep(time.Millisecond) {
			if stats, err := c.service.Stats(b.Context()); err != nil || stats.Delivered > 0 { // the result is recorded, too
				break
			}
		}
		time.Sleep(50 * time.Millisecond)
		stop()
	}
	inGoroutines(50, c.hanging, func(i int) {
		create(c.account(i), "https://"+net.JoinHostPort(hostOf(i), silent)+secretPath)
	})

	c.restart(b, file)
	event := c.publishAll(b)
	begun := time.Now()
	stop := start(b, c.service)
	defer stop()
	c.await(b, event)
	cold := time.Since(begun)
	if !testing.Short() {
		time.Sleep(3 * time.Second)
	}
	inGoroutines(50, c.accounts, func(i int) { c.publish(b, c.account(i)) })
	begun = time.Now()
	c.await(b, c.publish(b, "well"))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cold.Seconds()*1000, "cold-ms")
	b.ReportMetric(time.Since(begun).Seconds()*1000, "warm-ms")
}

func (c *startIsolation) account(i int) string { return fmt.Sprint("acct_", i%c.accounts) }

func (c *startIsolation) restart(b *testing.B, store driver.WebhookStore) {
	c.service = newService(b, store, webhooks.Config{
		Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), DrainTimeout: -1}, Logger: slog.New(slog.DiscardHandler), MaxPerAccount: -1,
	})
}

// publishAll publishes an event for each webhook, the healthy one last, and returns the ID of the
// last event.
func (c *startIsolation) publishAll(b *testing.B) string {
	inGoroutines(50, c.accounts, func(i int) { c.publish(b, c.account(i)) })
	return c.publish(b, "well")
}

func (c *startIsolation) publish(b *testing.B, account string) string {
	id := c.service.NewEventID()
	if err := c.service.Publish(b.Context(), webhooks.Event{ID: id, Account: account, Data: lowBalance}); err != nil {
		b.Error(err)
	}
	return id
}

// await waits until the event has arrived at the healthy webhook.
func (c *startIsolation) await(b *testing.B, event string) {
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case id := <-c.arrived:
			if id == event {
				return
			}
		case <-timeout:
			b.Fatal("nothing came within two minutes")
		}
	}
}

// listen starts the healthy receiver, and returns its URL.
func (c *startIsolation) listen(b *testing.B) string {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c.arrived <- r.Header.Get("Webhook-Id")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{trusted().issue(longAgo, farOff, "127.0.0.1")}}
	server.StartTLS()
	b.Cleanup(server.Close)
	return server.URL
}

// listenSilently accepts connections on all addresses and sends nothing. It returns the port.
func listenSilently(b *testing.B) (port string) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn) // until the other side closes it
				conn.Close()
			}()
		}
	}()
	return fmt.Sprint(netip.MustParseAddrPort(listener.Addr().String()).Port())
}
