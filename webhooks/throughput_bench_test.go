package webhooks_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkThroughput measures the rate of deliveries, from Publish to the settlement on disk,
// including the attempt log. There are at most 256 publishers and 64 workers. In the same run, the
// benchmark alternates with a floor: a plain net/http loop that signs and posts the same bodies to
// the same receivers, with the same number of workers. "of-floor" is the service's rate divided by
// the floor's rate. Figures are medians of the turns. Processor time covers this process, but not
// receivers in a separate process. Everything runs on one machine. The receivers first run in a
// separate process, as in reality, and then, for comparison, in this process, where they pause
// with it while a commit is synced.
func BenchmarkThroughput(b *testing.B) {
	for _, apart := range []bool{true, false} {
		benchmarkThroughput(b, apart)
	}
}

// BenchmarkHosts is like BenchmarkThroughput, with a webhook at each of many hosts. Service and
// floor both keep a connection to each host. Each connects before its turn, because keeping all
// connections at the same time would take too many descriptors.
func BenchmarkHosts(b *testing.B) {
	for _, hosts := range []int{100, 1_000, 10_000} {
		throughput{apart: true, body: 256, fanout: 1, receivers: 10, hosts: hosts}.measure(b)
	}
}

// BenchmarkMoreHostsThanConnections is like BenchmarkHosts, but the service keeps fewer connections
// than there are hosts, and events go to one host after the other, which is the worst order. The
// floor keeps a connection to each host. "of-same" compares the service with a loop whose
// [http.Transport] keeps as many connections as the service does.
func BenchmarkMoreHostsThanConnections(b *testing.B) {
	for _, hosts := range []int{6_000, 10_000} {
		throughput{apart: true, body: 256, fanout: 1, receivers: 10, hosts: hosts, kept: 5_000}.measure(b)
	}
}

func benchmarkThroughput(b *testing.B, apart bool) {
	for _, c := range []throughput{
		{plain: true, body: 256, fanout: 1, receivers: 1},
		{plain: true, body: 256, fanout: 10, receivers: 1},
		{plain: true, body: 2048, fanout: 1, receivers: 1},
		{plain: true, body: 2048, fanout: 10, receivers: 1},
		{body: 256, fanout: 1, receivers: 1},
		{body: 256, fanout: 1, receivers: 1, publishers: 64},
		{body: 256, fanout: 10, receivers: 1},
		{body: 2048, fanout: 1, receivers: 1},
		{body: 2048, fanout: 10, receivers: 1},
		{body: 256, fanout: 1, receivers: 100},
		{body: 256, fanout: 1, receivers: 1, others: 9},
		{body: 256, fanout: 1, receivers: 1, others: 999},
		{body: 256, fanout: 1, receivers: 1, others: 9_999},
	} {
		c.apart = apart
		c.measure(b)
	}
}

// measure alternates between floor and service, and reports their rates.
func (c throughput) measure(b *testing.B) {
	b.Run(c.String(), func(b *testing.B) {
		if testing.Short() && max(c.hosts, c.others) > 100 {
			b.Skip("takes too long with -short")
		}
		c.start(b)
		connectFloor := func() { c.floor(b, max(4*benchWorkers*c.receivers, c.hosts)) }
		connect := func() { c.service(b, max(10*c.fanout*benchWorkers+c.others, c.hosts)) }
		connectFloor()
		if c.hosts > 0 {
			c.transport.CloseIdleConnections()
		}
		connect()
		round := 50_000 // deliveries
		if testing.Short() {
			round = 500
		}
		var rates, ofFloor, ofSame, cpu, ofFloorCPU []float64 // one value for each turn
		for b.Loop() {
			var same time.Duration
			if c.kept > 0 {
				c.api.CloseIdle()
				c.transport.MaxIdleConns = c.kept
				connectFloor()
				same = c.floor(b, round)
				c.transport.CloseIdleConnections()
				c.transport.MaxIdleConns = 0
			}
			if c.hosts > 0 {
				c.api.CloseIdle()
				connectFloor()
			}
			at := processorTime()
			floor := c.floor(b, round)
			floorCPU := processorTime() - at
			if c.hosts > 0 {
				c.transport.CloseIdleConnections()
				connect()
			}
			at = processorTime()
			ours := c.service(b, round)
			oursCPU := processorTime() - at
			rates, ofFloor = append(rates, float64(round)/ours.Seconds()), append(ofFloor, floor.Seconds()/ours.Seconds())
			ofSame = append(ofSame, same.Seconds()/ours.Seconds())
			cpu = append(cpu, float64(oursCPU.Microseconds())/float64(round))
			ofFloorCPU = append(ofFloorCPU, oursCPU.Seconds()/floorCPU.Seconds())
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(median(rates), "deliveries/s")
		b.ReportMetric(median(ofFloor), "of-floor")
		if c.kept > 0 {
			b.ReportMetric(median(ofSame), "of-same")
		}
		b.ReportMetric(median(cpu), "cpu-µs")
		b.ReportMetric(median(ofFloorCPU), "×-floor-cpu")
	})
}

// median returns the median, and sorts the list.
func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkNaive measures a simple engine that uses one bbolt Update to publish, one to take the
// next delivery, and one to record its result.
func BenchmarkNaive(b *testing.B) {
	c := throughput{body: 256, fanout: 1, receivers: 1}
	c.start(b)
	round := 10_000
	if testing.Short() {
		round = 1000
	}
	var naive, ours time.Duration
	for b.Loop() {
		naive += c.naive(b, round/10) * 10
		ours += c.service(b, round)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(b.N*round)/naive.Seconds(), "naive/s")
	b.ReportMetric(float64(b.N*round)/ours.Seconds(), "deliveries/s")
	b.ReportMetric(naive.Seconds()/ours.Seconds(), "times-naive")
}

// BenchmarkArrival measures the time from Publish to the request's arrival on an idle service.
func BenchmarkArrival(b *testing.B) {
	arrived := make(chan time.Time, 1)
	c := throughput{body: 256, fanout: 1, receivers: 1, arrived: func() { arrived <- time.Now() }}
	c.start(b)
	var waits []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := c.api.Publish(b.Context(), c.event("")); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, (<-arrived).Sub(began))
	}
	slices.Sort(waits)
	b.ReportMetric(waits[len(waits)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(waits[len(waits)*99/100].Seconds()*1000, "p99-ms")
}

// A throughput holds the settings of a measurement.
type throughput struct {
	plain      bool // without TLS, which is possible only in tests
	body       int  // approximate size in bytes
	fanout     int  // webhooks per event
	receivers  int
	hosts      int    // host names of the receivers, with a webhook each; 0: none
	kept       int    // connections that the service keeps; 0: one for each host
	others     int    // additional webhooks, in separate accounts, with as many events
	publishers int    // concurrent publishers; 0: 256
	apart      bool   // the receivers are in a separate process
	arrived    func() // called for each request; nil means nothing

	data      webhooks.Data
	urls      []string
	accounts  []string
	transport *http.Transport
	counted   *countdown
	api       *webhooks.WebhookService
}

func (c throughput) String() string {
	kind := "tls"
	if c.plain {
		kind = "plain"
	}
	where := "within"
	if c.apart {
		where = "apart"
	}
	name := fmt.Sprintf("%s/%s/body=%d/fanout=%d", where, kind, c.body, c.fanout)
	switch {
	case c.kept > 0:
		return fmt.Sprintf("%s/hosts=%d/kept=%d", name, c.hosts, c.kept)
	case c.hosts > 0:
		return fmt.Sprintf("%s/hosts=%d", name, c.hosts)
	case c.publishers > 0:
		return fmt.Sprintf("%s/publishers=%d", name, c.publishers)
	}
	return fmt.Sprintf("%s/receivers=%d/webhooks=%d", name, c.receivers, c.fanout*c.receivers+c.others)
}

// start starts the receivers and the service.
func (c *throughput) start(b *testing.B) {
	files := []alerts.ExpiringFile{{ID: "f", ExpiresAt: time.Unix(1_800_000_000, 0)}}
	c.data = alerts.FilesExpiring{Files: files}
	files[0].ID = strings.Repeat("f", max(1, c.body-len(mustSeal(b, c.event("evt_"+strings.Repeat("0", 26))).Body)))
	c.listen(b)
	if c.hosts > 0 {
		c.urls = hostURLs(c.urls, c.hosts)
	}
	dial := (&net.Dialer{}).DialContext
	c.transport = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}, MaxIdleConnsPerHost: benchWorkers, DisableCompression: true,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	if c.plain {
		c.transport.DialTLSContext = dial
	}
	b.Cleanup(c.transport.CloseIdleConnections)

	file, err := bolt.Open(filepath.Join(b.TempDir(), "throughput.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	c.counted = &countdown{WebhookStore: file, done: make(chan struct{})}
	c.api = newService(b, c.counted, webhooks.Config{
		Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), MaxIdleConns: cmp.Or(c.kept, max(c.hosts, 1024))}, Logger: slog.New(slog.DiscardHandler),
		Concurrency: webhooks.Concurrency{Total: benchWorkers, PerWebhook: benchWorkers, PerAccount: benchWorkers},
	})
	if c.plain {
		c.api.DialThrough(nil)
	}
	for i := range len(c.urls) + c.others {
		c.accounts = append(c.accounts, fmt.Sprint("acct_", i))
	}
	inGoroutines(256, len(c.accounts), func(i int) {
		for range c.fanout {
			_, err := c.api.Create(b.Context(), c.accounts[i], webhooks.CreateParams{URL: c.urls[i%len(c.urls)], Events: alerts.EventTypes()})
			if err != nil {
				b.Error(err)
			}
		}
	})
	start(b, c.api)
}

func (c *throughput) event(id string) webhooks.Event {
	return webhooks.Event{ID: id, Account: "acct_0", Data: c.data, Timestamp: time.Unix(1_700_000_000, 0)}
}

// listen starts the receivers.
func (c *throughput) listen(b *testing.B) {
	if c.apart {
		s := sinks{Number: c.receivers}
		if !c.plain {
			s = s.overTLS()
		}
		c.urls = s.start(b)
		return
	}
	answer := http.HandlerFunc(swallow)
	if c.arrived != nil {
		answer = func(w http.ResponseWriter, r *http.Request) {
			c.arrived()
			swallow(w, r)
		}
	}
	for range c.receivers {
		c.urls = append(c.urls, newSink(b, c.plain, answer).url("127.0.0.1"))
	}
}

// swallow accepts every request.
func swallow(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}

// service publishes and delivers, and returns the time taken.
func (c *throughput) service(b *testing.B, deliveries int) time.Duration {
	began := time.Now()
	done := c.counted.expect(deliveries)
	inGoroutines(cmp.Or(c.publishers, 256), deliveries/c.fanout, func(i int) {
		event := c.event("")
		event.Account = c.accounts[i%len(c.accounts)]
		if err := c.api.Publish(b.Context(), event); err != nil {
			b.Error(err)
		}
	})
	<-done
	return time.Since(began)
}

// floor signs and posts, and returns the time taken.
func (c *throughput) floor(b *testing.B, deliveries int) time.Duration {
	signer := must(signing.NewSigner("", signing.NewSecret()))
	body := mustSeal(b, c.event("evt_1")).Body
	began := time.Now()
	inGoroutines(benchWorkers, deliveries, func(i int) { c.post(b, signer, body, c.urls[i%len(c.urls)]) })
	return time.Since(began)
}

func (c *throughput) post(b *testing.B, signer *signing.Signer, body []byte, url string) {
	request, _ := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	signer.Sign(request.Header, "evt_1", time.Now(), body)
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		b.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
}

// naive publishes and delivers with one Update for each step.
func (c *throughput) naive(b *testing.B, deliveries int) time.Duration {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "naive.db"), 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	update := func(do func(queue, log *bbolt.Bucket) error) {
		err := db.Update(func(tx *bbolt.Tx) error {
			queue, err := tx.CreateBucketIfNotExists([]byte("queue"))
			if err != nil {
				return err
			}
			log, err := tx.CreateBucketIfNotExists([]byte("log"))
			if err != nil {
				return err
			}
			return do(queue, log)
		})
		if err != nil {
			b.Error(err)
		}
	}
	signer := must(signing.NewSigner("", signing.NewSecret()))
	body := mustSeal(b, c.event("evt_1")).Body
	began := time.Now()
	inGoroutines(benchWorkers, deliveries, func(i int) {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		update(func(queue, _ *bbolt.Bucket) error { return queue.Put(key, body) })
		update(func(queue, _ *bbolt.Bucket) error { return queue.Put(key, append([]byte("taken"), body...)) })
		c.post(b, signer, body, c.urls[0])
		update(func(queue, log *bbolt.Bucket) error {
			if err := log.Put(key, []byte("delivered")); err != nil {
				return err
			}
			return queue.Delete(key)
		})
	})
	return time.Since(began)
}

// A countdown is a store that reports when an expected number of deliveries is settled.
type countdown struct {
	driver.WebhookStore
	mu   sync.Mutex
	left int
	done chan struct{}
}

// expect begins to count. The returned channel is closed once the given number of deliveries is
// settled.
func (c *countdown) expect(deliveries int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.done = deliveries, make(chan struct{})
	return c.done
}

func (c *countdown) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	settled, err := c.WebhookStore.Settle(ctx, results, health)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, result := range results {
		if err != nil || result.Effect != driver.Deliver || slices.Contains(settled.Stale, i) {
			continue
		}
		if c.left--; c.left == 0 {
			close(c.done)
		}
	}
	return settled, err
}
