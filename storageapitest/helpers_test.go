package storageapitest_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/webhooks"
)

// t replaces the *testing.T in Examples, which get none.
var t testing.TB = exampleTB{}

type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                           {}
func (exampleTB) Cleanup(func())                    {} // not needed, since the program ends
func (exampleTB) Output() io.Writer                 { return io.Discard }
func (exampleTB) Context() context.Context          { return context.Background() }
func (exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// publish publishes n events, and returns their IDs.
func publish(t testing.TB, kit *storageapitest.Kit, n int) (ids []string) {
	t.Helper()
	for range n {
		event := webhooks.Event{ID: kit.API.Webhooks.NewEventID(), Account: kit.Account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
		if err := kit.API.Webhooks.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, event.ID)
	}
	return ids
}
