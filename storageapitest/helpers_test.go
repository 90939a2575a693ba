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

// t is what the Examples, which are not given a *testing.T, have for one.
var t testing.TB = exampleTB{}

type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                           {}
func (exampleTB) Cleanup(func())                    {} // the program ends
func (exampleTB) Output() io.Writer                 { return io.Discard }
func (exampleTB) Context() context.Context          { return context.Background() }
func (exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// publish publishes so many events, and returns their ids.
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
