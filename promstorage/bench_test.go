package promstorage_test

import (
	"context"
	"testing"
	"time"

	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/promstorage"
)

// BenchmarkAuthenticated measures the cost of metrics on the goroutine of a guarded request.
func BenchmarkAuthenticated(b *testing.B) {
	authenticated := promstorage.New().Observer().Authenticated
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		authenticated(ctx, observe.Authentication{Outcome: observe.OK, Account: "acct_1", KeyID: "key_1", Duration: 80 * time.Microsecond})
	}
}
