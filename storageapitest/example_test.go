package storageapitest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/webhooks"
)

// upload is code of the host that stores a file and reports the bandwidth used.
func upload(api *storageapi.Handler, account string, size int64) {
	_ = api.Alerts.ReportBandwidth(t.Context(), account, size, 1<<40, time.Now().UTC().Format("2006-01"))
}

// listFiles is a route of the host.
var listFiles = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"files":[]}`) })

// An upload over the quota must publish an event to the webhook.
func Example() {
	kit := storageapitest.New(t) // the test's *testing.T
	receiver := kit.Subscribe(alerts.TypeBandwidthLimitReached)
	upload(kit.API, kit.Account, 2<<40)
	event := receiver.Next()
	fmt.Println(event.Type)

	// Output:
	// bandwidth.limit_reached
}

// A revoked key is rejected.
func ExampleKit_Revoke() {
	kit := storageapitest.New(t) // the test's *testing.T
	key := kit.Key(scopes.FilesRead)
	routes := kit.API.Auth.Require(scopes.FilesRead, listFiles)
	fmt.Println(key.Do(routes, "GET", "/v2/files", "").Status)
	kit.Revoke(key)
	fmt.Println(key.Do(routes, "GET", "/v2/files", "").Status)

	// Output:
	// 200 OK
	// 401 Unauthorized
}

// A receiver that fails once gets the event again.
func ExampleReceiver_Script() {
	kit := storageapitest.New(t, storageapitest.Config(storageapi.Config{
		Webhooks: webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Millisecond}}}, // 5 s by default; a bubble needs no such change
	}))
	receiver := kit.Subscribe(alerts.TypeBandwidthLimitReached)
	receiver.Script(storageapitest.Status(http.StatusInternalServerError).Times(1))
	upload(kit.API, kit.Account, 2<<40)
	receiver.Next()
	for _, request := range receiver.Requests() {
		fmt.Println(request.Event.Type, request.Status)
	}

	// Output:
	// bandwidth.limit_reached 500
	// bandwidth.limit_reached 200
}

// TestReceiverIsDownForTwoDays shows how to use virtual time.
func TestReceiverIsDownForTwoDays(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t)
		receiver := kit.Subscribe(alerts.TypeBalanceLow)
		receiver.Script(storageapitest.Down().For(48 * time.Hour))
		publish(t, kit, 100)
		kit.WaitIdle()
		if got := len(receiver.Events()); got != 100 {
			t.Errorf("%d of 100 events arrived", got)
		}
	})
}
