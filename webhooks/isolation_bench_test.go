package webhooks_test

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkIsolation measures the time from Publish to arrival at healthy webhooks, under steady
// load, over TLS and with the store on disk. It measures first with only healthy webhooks, which is
// the floor, and then after some begin to hang. "rise-ms" is the rise of the 99th percentile.
// "rise-of-median-ms" is the rise of the median of the 99th percentiles of each second, which other
// load on the machine disturbs less. Each webhook has a host with a separate address. Everything
// runs on one machine, so goroutines and sockets include those of the receivers.
func BenchmarkIsolation(b *testing.B) {
	for _, c := range []*isolation{
		{webhooks: 100, hanging: 1, accounts: 100, backlog: 10_000},
		{webhooks: 100, hanging: 1, accounts: 1, backlog: 10_000},
		{webhooks: 1000, hanging: 50, accounts: 100},
		{webhooks: 1000, hanging: 200, accounts: 100},
		{webhooks: 1000, hanging: 50, accounts: 1},
		{webhooks: 1000, hanging: 200, accounts: 1},
		{webhooks: 1000, hanging: 200, accounts: 100, slots: 64},
	} {
		b.Run(c.String(), func(b *testing.B) {
			if testing.Short() && c.webhooks > 100 && c.slots == 0 {
				b.Skip("only larger: run without -short")
			}
			for b.Loop() {
				c.run(b)
			}
		})
	}
}

// An isolation is one measurement of BenchmarkIsolation.
type isolation struct {
	webhooks, hanging int
	accounts          int // number of accounts; each event goes to all webhooks of its account
	backlog           int // number of events for the first webhook, published once it hangs
	slots             int // 0: the default

	service  *webhooks.WebhookService
	hang     atomic.Bool
	ended    chan struct{}
	sockets  atomic.Int64
	arrivals arrivalList
}

func (c *isolation) String() string {
	name := fmt.Sprintf("%d of %d hang/accounts=%d", c.hanging, c.webhooks, c.accounts)
	if c.slots > 0 {
		name += fmt.Sprintf("/slots=%d", c.slots)
	}
	return name
}

// load is the number of deliveries per second.
const load = 2000

func (c *isolation) run(b *testing.B) {
	warmup, phase := 4*time.Second, 10*time.Second
	if testing.Short() {
		warmup, phase = 100*time.Millisecond, 200*time.Millisecond
	}
	c.start(b)
	c.feed(b, warmup)
	c.arrivals.take()
	runtime.GC()
	c.feed(b, phase)
	before := c.arrivals.take()

	c.hang.Store(true)
	if c.backlog > 0 {
		c.pile(b)
		c.feed(b, warmup)
		c.arrivals.take()
		runtime.GC()
	}
	peak := c.watch()
	c.feed(b, phase)
	goroutines, sockets := peak()
	time.Sleep(100 * time.Millisecond)
	during := c.arrivals.take()

	if want := float64(load) * phase.Seconds() * (1 - float64(c.hanging)/float64(c.webhooks)); float64(len(during)) < 0.9*want {
		b.Logf("%d events arrived of about %.0f", len(during), want)
	}
	p99 := percentile(before, 99)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(percentile(before, 50), "p50-before-ms")
	b.ReportMetric(percentile(during, 50), "p50-during-ms")
	b.ReportMetric(p99, "p99-before-ms")
	b.ReportMetric(percentile(during, 99), "p99-during-ms")
	b.ReportMetric(percentile(during, 99)-p99, "rise-ms")
	b.ReportMetric(medianSecond(during)-medianSecond(before), "rise-of-median-ms")
	b.ReportMetric(percentile(during, 100), "max-during-ms")
	b.ReportMetric(float64(goroutines), "goroutines")
	b.ReportMetric(float64(sockets), "sockets")
}

// start starts the receivers and the service.
func (c *isolation) start(b *testing.B) {
	c.ended = make(chan struct{})
	c.hang.Store(false)
	port := c.listen(b)
	file, err := bolt.Open(filepath.Join(b.TempDir(), "isolation.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	c.service = newService(b, file, webhooks.Config{
		Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), DrainTimeout: -1}, Logger: slog.New(slog.DiscardHandler), Concurrency: webhooks.Concurrency{Total: c.slots},
		MaxPerAccount: -1,
	})
	types := []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeBandwidthLimitReached}
	for i := range c.webhooks {
		params := webhooks.CreateParams{URL: "https://" + net.JoinHostPort(hostOf(i), port) + secretPath, Events: types}
		if _, err := c.service.Create(b.Context(), c.account(i), params); err != nil {
			b.Fatal(err)
		}
		types = onBalance // the backlog is for the first webhook only
	}
	stop := start(b, c.service)
	b.Cleanup(func() {
		close(c.ended)
		stop()
	})
}

// pile publishes the backlog.
func (c *isolation) pile(b *testing.B) {
	var publishers sync.WaitGroup
	for range 50 {
		publishers.Go(func() {
			for range c.backlog / 50 {
				err := c.service.Publish(b.Context(), webhooks.Event{Account: c.account(0), Data: alerts.BandwidthLimitReached{}})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	publishers.Wait()
}

// feed publishes at a steady rate for d.
func (c *isolation) feed(b *testing.B, d time.Duration) {
	const publishers = 16
	interval := time.Second / load * time.Duration(c.webhooks/c.accounts) * publishers
	var running sync.WaitGroup
	for k := range publishers {
		running.Go(func() {
			next := time.Now().Add(interval * time.Duration(k) / publishers)
			end := time.Now().Add(d)
			for i := k; next.Before(end); i += publishers {
				time.Sleep(time.Until(next))
				next = next.Add(interval)
				id := fmt.Sprintf("t_%d_%d", time.Now().UnixNano(), i)
				if err := c.service.Publish(b.Context(), webhooks.Event{ID: id, Account: c.account(i), Data: lowBalance}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

func (c *isolation) account(i int) string { return fmt.Sprint("acct_", i%c.accounts) }

// hostOf returns the address of webhook i. indexOf is the inverse.
func hostOf(i int) string { return fmt.Sprintf("127.1.%d.%d", i/200, 1+i%200) }

func indexOf(host string) int {
	bytes := netip.MustParseAddrPort(host).Addr().As4()
	return int(bytes[2])*200 + int(bytes[3]) - 1
}

// listen starts the receiver of all webhooks and returns its port.
func (c *isolation) listen(b *testing.B) string {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		b.Fatal(err)
	}
	var hosts []string
	for i := range c.webhooks {
		hosts = append(hosts, hostOf(i))
	}
	certificates := make(map[string]tls.Certificate) // a small certificate for each host
	for _, host := range hosts {
		certificates[host] = trusted().issue(longAgo, farOff, host)
	}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				c.sockets.Add(2) // both ends
			case http.StateClosed:
				c.sockets.Add(-2)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now()
			if indexOf(r.Host) < c.hanging {
				if c.hang.Load() {
					select {
					case <-r.Context().Done():
					case <-c.ended:
					}
				}
				return
			}
			if parts := strings.Split(r.Header.Get("Webhook-Id"), "_"); parts[0] == "t" {
				nanos, _ := strconv.ParseInt(parts[1], 10, 64)
				c.arrivals.add(arrival{now, now.Sub(time.Unix(0, nanos))})
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	go server.Serve(tls.NewListener(listener, &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		host, _, _ := net.SplitHostPort(hello.Conn.LocalAddr().String())
		certificate := certificates[host]
		return &certificate, nil
	}}))
	b.Cleanup(func() { server.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// watch begins to count goroutines and sockets. The returned function returns the maximum of each.
func (c *isolation) watch() (peak func() (goroutines, sockets int)) {
	var goroutines, sockets int
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			goroutines = max(goroutines, runtime.NumGoroutine())
			sockets = max(sockets, int(c.sockets.Load()))
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ended:
				return
			}
		}
	}()
	return func() (int, int) {
		close(ended)
		<-done
		return goroutines, sockets
	}
}

// An arrival records when an event arrived and how long it took.
type arrival struct {
	at   time.Time
	took time.Duration
}

type arrivalList struct {
	mu   sync.Mutex
	list []arrival
}

func (a *arrivalList) add(one arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, one)
}

// take returns the arrivals since the last call.
func (a *arrivalList) take() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list = nil
	return list
}

// percentile returns a percentile of the times taken, in milliseconds.
func percentile(list []arrival, percent int) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b arrival) int { return cmp.Compare(a.took, b.took) })
	return list[min(len(list)*percent/100, len(list)-1)].took.Seconds() * 1000
}

// medianSecond computes the 99th percentile of the latencies of each second, and returns the median
// of these, in milliseconds.
func medianSecond(list []arrival) float64 {
	if len(list) == 0 {
		return 0
	}
	bySecond := make(map[int64][]arrival)
	for _, one := range list {
		bySecond[one.at.Unix()] = append(bySecond[one.at.Unix()], one)
	}
	var seconds []float64
	for _, second := range bySecond {
		seconds = append(seconds, percentile(second, 99))
	}
	slices.Sort(seconds)
	return seconds[len(seconds)/2]
}
