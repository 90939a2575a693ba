package bolt_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkPublishDuringUses measures Publish at 1,000 events/s, alone and while the last uses of
// 65,536 keys are written. The two alternate, with five turns each; the results are medians of the
// turns' percentiles. The lateness of an event is the time from when it should have been published
// until it is stored.
func BenchmarkPublishDuringUses(b *testing.B) {
	store, err := bolt.Open(filepath.Join(b.TempDir(), "uses.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		b.Fatal(err)
	}
	_, err = hooks.Create(b.Context(), "acct_1", webhooks.CreateParams{
		URL: "https://example.com/hooks", Events: []driver.EventType{alerts.TypeBalanceLow},
	})
	if err != nil {
		b.Fatal(err)
	}
	keys, err := apikeys.New(store, apikeys.Config{MaxPerAccount: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer keys.Close()
	count, alone, turns := 1<<16, 5*time.Second, 5
	if testing.Short() {
		count, alone, turns = 1<<12, 100*time.Millisecond, 1
	}
	tokens := make([]string, count)
	var wg sync.WaitGroup
	for p := range 256 {
		wg.Go(func() {
			for i := p; i < count; i += 256 {
				_, token, err := keys.Create(b.Context(), fmt.Sprint("acct_", i%100), apikeys.CreateParams{Name: "key", Scopes: scopes.Specified()})
				if err != nil {
					b.Error(err)
					return
				}
				tokens[i] = token.Reveal()
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		return
	}
	for b.Loop() {
		var without, with [2][]time.Duration
		add := func(to *[2][]time.Duration, took []time.Duration) {
			slices.Sort(took)
			to[0] = append(to[0], took[len(took)/2])
			to[1] = append(to[1], took[len(took)*99/100])
		}
		for range turns {
			ended := make(chan struct{})
			time.AfterFunc(alone, func() { close(ended) })
			add(&without, publishAt(b, hooks, ended))

			for _, token := range tokens {
				if _, err := keys.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				if err := keys.WriteUses(b.Context()); err != nil {
					b.Error(err)
				}
			}()
			add(&with, publishAt(b, hooks, ended))
		}
		median := func(took []time.Duration) float64 {
			slices.Sort(took)
			return float64(took[len(took)/2].Microseconds()) / 1000
		}
		b.ReportMetric(median(without[0]), "p50-ms")
		b.ReportMetric(median(without[1]), "p99-ms")
		b.ReportMetric(median(with[0])/median(without[0]), "x/p50")
		b.ReportMetric(median(with[1])/median(without[1]), "x/p99")
	}
}

// publishAt publishes 1,000 events/s until ended is closed, and returns the lateness of each.
func publishAt(b *testing.B, service *webhooks.WebhookService, ended <-chan struct{}) (took []time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	for i := 0; ; i++ {
		due := begun.Add(time.Duration(i) * time.Millisecond)
		select {
		case <-ended:
			wg.Wait()
			return took
		case <-time.After(time.Until(due)):
		}
		wg.Go(func() {
			err := service.Publish(b.Context(), webhooks.Event{
				Account: "acct_1", Data: alerts.BalanceLow{Balance: 1_500_000_000, Threshold: 2_000_000_000},
			})
			if err != nil {
				b.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
		})
	}
}
