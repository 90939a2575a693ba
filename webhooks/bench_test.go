package webhooks_test

import (
	"sync"
	"testing"

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

// inGoroutines calls do for each number below n, in the given number of goroutines.
func inGoroutines(goroutines, n int, do func(i int)) {
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < n; i += goroutines {
				do(i)
			}
		})
	}
	wg.Wait()
}
