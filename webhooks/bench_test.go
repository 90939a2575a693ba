package webhooks_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func BenchmarkPublish(b *testing.B) {
	service := newService(b, memory.New(), webhooks.Config{})
	subscribe(b, service, anyURL)
	b.ReportAllocs()
	for b.Loop() {
		if err := service.Publish(b.Context(), webhooks.Event{Account: account, Data: lowBalance}); err != nil {
			b.Fatal(err)
		}
	}
}

const benchWorkers = 64

// What a delivery costs over loopback TLS, with the store in memory, against a
// bare client that signs and posts the same with as many workers.
func BenchmarkDelivery(b *testing.B) {
	b.Run("service", func(b *testing.B) {
		receiver := newReceiver(b, status(http.StatusNoContent))
		counted := &countdown{Store: memory.New(), left: b.N, done: make(chan struct{})}
		service := newService(b, counted, webhooks.Config{
			AllowNetworks: loopback, RootCAs: trusted().pool(), Logger: slog.New(slog.DiscardHandler), Concurrency: benchWorkers, PerWebhook: benchWorkers,
		})
		subscribe(b, service, receiver.url("127.0.0.1"))
		for range b.N {
			publish(b, service)
		}
		b.ReportAllocs()
		b.ResetTimer()
		start(b, service)
		<-counted.done
	})
	b.Run("floor: bare client", func(b *testing.B) {
		receiver := newReceiver(b, status(http.StatusNoContent))
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}, MaxIdleConnsPerHost: benchWorkers,
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		}
		defer transport.CloseIdleConnections()
		signer, err := signing.NewSigner("", signing.NewSecret())
		if err != nil {
			b.Fatal(err)
		}
		body := mustSeal(b, webhooks.Event{Account: account, Data: lowBalance}).Body
		work := make(chan int, b.N)
		for i := range b.N {
			work <- i
		}
		close(work)
		b.ReportAllocs()
		b.ResetTimer()
		var wg sync.WaitGroup
		for range benchWorkers {
			wg.Go(func() {
				for range work {
					request, _ := http.NewRequest(http.MethodPost, receiver.url("127.0.0.1"), bytes.NewReader(body))
					signer.Sign(request.Header, "evt_1", time.Now(), body)
					response, err := transport.RoundTrip(request)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			})
		}
		wg.Wait()
	})
}

// A countdown is a store that tells when so many deliveries are settled.
type countdown struct {
	webhooks.Store
	left int
	done chan struct{}
}

func (c *countdown) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) ([]int, error) {
	stale, err := c.Store.SettleDeliveries(ctx, settlements)
	if c.left -= len(settlements); c.left == 0 {
		close(c.done)
	}
	return stale, err
}
