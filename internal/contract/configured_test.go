package contract

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

// another starts a host with a different configuration. Its responses are recorded together with
// those of first.
func another(t *testing.T, first *host, change func(*storageapi.Config)) *host {
	t.Helper()
	h := newHost(t, first.document, change)
	h.seen = first.seen
	return h
}

// testLimits creates the maximum number of keys and webhooks, and then one more of each.
func testLimits(t *testing.T, first *host) {
	h := another(t, first, func(c *storageapi.Config) {
		c.Keys.MaxPerAccount, c.Webhooks.MaxPerAccount = 2, 1 // 2 keys include the administrator's
		c.RateLimit = auth.RateLimit{}
	})
	for op, bodies := range map[string][2]string{
		"createKey":     {`{"name":"a","scopes":["files:read"]}`, `{"name":"b","scopes":["files:read"]}`},
		"createWebhook": {`{"url":"https://example.com","events":["balance.low"]}`, `{"url":"https://example.org","events":["balance.low"]}`},
	} {
		once := header("Idempotency-Key", "7c5b7a2e-7f8f-4f0e-9d1c-3d1c6d0a5a55")
		made := h.do(t, op, 201, body(bodies[0]), once)
		again := h.do(t, op, 200, body(" "+bodies[0]), once)
		got := h.do(t, strings.Replace(op, "create", "get", 1), 200, at(made.text("id")))
		if again.header.Get("ETag") != got.header.Get("ETag") || string(again.body) != string(got.body) {
			t.Errorf("not what is got: %v", again)
		}
		h.do(t, op, 409, body(bodies[1]), once)
		h.do(t, op, 409, body(bodies[1])) // one more than the limit
		h.do(t, op, 400, body(bodies[1]), header("Idempotency-Key", "not visible"))
	}
}

// testRetention redelivers an event whose body is no longer stored.
func testRetention(t *testing.T, first *host) {
	const forever = -1
	h := another(t, first, func(c *storageapi.Config) {
		c.Webhooks.Retention.Payloads, c.Webhooks.Retention.Attempts, c.Webhooks.Retention.EventIDs = time.Millisecond, forever, forever
	})
	webhook := h.webhook(t, "/fails")
	event := h.publish(everyEvent()[0])
	h.settled(t, webhook, event, "dead")
	eventually(t, "the payload is gone", func() bool {
		h.recoverStep(t, webhook, body(`{"states":["skipped"]}`)) // the running host purges
		done, err := h.exchange(h.prepare("redeliver", at(webhook, event)))
		if err != nil {
			t.Fatal(err)
		}
		return done.status == http.StatusConflict
	})
	for _, gone := range []*exchange{h.do(t, "getDeliveryBody", 404, at(webhook, event)), h.do(t, "getEventBody", 404, at(event))} {
		if !contains(gone.body, "not stored") {
			t.Errorf("%v", gone)
		}
	}
}

// testRates exceeds the rate limit of one key.
func testRates(t *testing.T, first *host) {
	h := another(t, first, func(c *storageapi.Config) {
		c.RateLimit = auth.RateLimit{PerSecond: 1e-6, Burst: 1}
	})
	granted := h.do(t, "listKeys", 200)
	if got := granted.header; got.Get("X-RateLimit-Limit") != "1" || got.Get("X-RateLimit-Remaining") != "0" || got.Get("X-RateLimit-Reset") == "0" {
		t.Errorf("%v", granted)
	}
	for _, op := range h.operations {
		h.do(t, op.id, 429, nobody, exampleBody)
	}
}

// testFailing first lists keys on a host whose store cannot list them. It then calls every
// operation on two hosts: one whose file is closed, and one whose store is unreachable.
func testFailing(t *testing.T, first *host) {
	h := another(t, first, func(c *storageapi.Config) { c.Path, c.Store = "", unlisting{memory.New()} })
	h.do(t, "listKeys", 500)

	h = another(t, first, nil)
	if err := h.api.Close(); err != nil {
		t.Fatal(err)
	}
	for _, op := range h.operations {
		h.do(t, op.id, 500, nobody, exampleBody)
	}

	var down atomic.Bool
	h = another(t, first, func(c *storageapi.Config) { c.Path, c.Store = "", unreachable{memory.New(), &down} })
	down.Store(true)
	for _, op := range h.operations {
		h.do(t, op.id, 503, nobody, exampleBody)
	}
}

// unreachable is a store that cannot be reached while down is set.
type unreachable struct {
	store.Store
	down *atomic.Bool
}

func (u unreachable) KeyByHash(ctx context.Context, hash driver.Hash) (apikeys.Key, error) {
	if u.down.Load() {
		return apikeys.Key{}, fmt.Errorf("%w: connection refused", auth.ErrUnavailable)
	}
	return u.Store.KeyByHash(ctx, hash)
}

// unlisting is a store that cannot list keys.
type unlisting struct{ store.Store }

func (unlisting) ListKeys(context.Context, string, driver.ListQuery) ([]apikeys.Key, error) {
	return nil, errors.New("cannot list")
}
