package webhooks_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkAttempt measures an attempt over loopback TLS with the receiver on the same machine,
// and compares it with a plain loop that signs and posts the same body.
func BenchmarkAttempt(b *testing.B) {
	event := mustSeal(b, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance})
	for name, answer := range map[string]http.HandlerFunc{
		"204":  status(http.StatusNoContent),
		"body": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"received":true}`) },
	} {
		b.Run(name, func(b *testing.B) {
			receiver := newSink(b, false, answer)
			b.Run("client", func(b *testing.B) {
				service := newService(b, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool()}})
				webhook := webhooks.Webhook{ID: "wh_1", URL: receiver.url("127.0.0.1"), Secret: signing.NewSecret()}
				inParallel(b, func() bool {
					got := service.Attempt(b.Context(), &webhooks.Task{Event: event, Webhook: &webhook, Attempt: 1})
					return got.Error == ""
				})
			})
			b.Run("floor", func(b *testing.B) {
				transport := &http.Transport{
					TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}, MaxIdleConnsPerHost: benchWorkers, DisableCompression: true,
					TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
				}
				defer transport.CloseIdleConnections()
				signer := must(signing.NewSigner("", signing.NewSecret()))
				inParallel(b, func() bool {
					request, _ := http.NewRequest(http.MethodPost, receiver.url("127.0.0.1"), bytes.NewReader(event.Body))
					signer.Sign(request.Header, event.ID, time.Now(), event.Body)
					response, err := transport.RoundTrip(request)
					if err != nil {
						return false
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
					return true
				})
			})
		})
	}
}

// BenchmarkIdleConns measures the memory that an idle connection takes if each host has a separate
// certificate, and how much of it the TLS session still takes after the connection is closed. For
// comparison, it measures a connection of net/http without a session.
func BenchmarkIdleConns(b *testing.B) {
	hosts := 2000
	if testing.Short() {
		hosts = 200
	}
	urls := hostURLs(sinks{Number: 2}.overTLS().start(b), hosts)
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // a sync.Pool is emptied only by the second collection
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	event := mustSeal(b, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance})
	var kept, left, floor float64
	for b.Loop() {
		service := newService(b, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), MaxIdleConns: hosts}})
		before := heap()
		inGoroutines(8, hosts, func(i int) {
			webhook := webhooks.Webhook{ID: "wh_1", URL: urls[i], Secret: signing.NewSecret()}
			if got := service.Attempt(b.Context(), &webhooks.Task{Event: event, Webhook: &webhook, Attempt: 1}); got.Error != "" {
				b.Error(got.Error)
			}
		})
		kept += (heap() - before) / float64(hosts)
		service.CloseIdle()
		left += (heap() - before) / float64(hosts)
		runtime.KeepAlive(service)

		before = heap()
		bare := throughput{urls: urls, transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}}}
		signer := must(signing.NewSigner("", signing.NewSecret()))
		inGoroutines(8, hosts, func(i int) { bare.post(b, signer, event.Body, urls[i]) })
		floor += (heap() - before) / float64(hosts)
		bare.transport.CloseIdleConnections()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(kept/float64(b.N), "B/conn")
	b.ReportMetric(left/float64(b.N), "B/session")
	b.ReportMetric(floor/float64(b.N), "B/conn-floor")
}

// inParallel runs work b.N times with benchWorkers workers, like the other benchmarks. Before the
// measurement, it runs work often enough for all workers to open connections.
func inParallel(b *testing.B, work func() bool) {
	run := func(times int) {
		left := make(chan struct{}, times)
		for range times {
			left <- struct{}{}
		}
		close(left)
		var wg sync.WaitGroup
		for range benchWorkers {
			wg.Go(func() {
				for range left {
					if !work() {
						b.Error("it failed")
						return
					}
				}
			})
		}
		wg.Wait()
	}
	run(4 * benchWorkers)
	b.ReportAllocs()
	b.ResetTimer()
	run(b.N)
}

// newSink starts a receiver that records nothing, over TLS unless plain is set.
func newSink(tb testing.TB, plain bool, answer http.HandlerFunc) *receiver {
	tb.Helper()
	r := &receiver{}
	listener := r.listen(tb)
	if !plain {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{goodCertificate()}})
	}
	server := &http.Server{Handler: answer}
	go server.Serve(listener)
	tb.Cleanup(func() { server.Close() })
	return r
}
