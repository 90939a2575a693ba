package contract

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/scopes"
)

// settled waits until the event's delivery to the webhook has the given state. It returns the
// response that showed this state.
func (h *host) settled(t *testing.T, webhook, event, state string) *exchange {
	t.Helper()
	var got *exchange
	eventually(t, event+" is "+state, func() bool {
		got = h.do(t, "getDelivery", 200, at(webhook, event))
		return got.text("state") == state
	})
	return got
}

func (h *host) testDeliveries(t *testing.T) {
	webhook := h.webhook(t, "/fails")
	dead := h.publish(everyEvent()[0])
	if failed := h.settled(t, webhook, dead, "dead"); !contains(failed.body, `"errorClass":"status"`, `"status":503`) {
		t.Errorf("%v", failed)
	}
	h.do(t, "updateWebhook", 200, at(webhook), body(fmt.Sprintf(`{"url":%q}`, h.receiver.url)))
	delivered := h.publish(everyEvent()[1])
	h.settled(t, webhook, delivered, "delivered")
	h.do(t, "updateWebhook", 200, at(webhook), body(`{"active":false}`))
	skipped := h.publish(everyEvent()[2])
	h.settled(t, webhook, skipped, "skipped")

	h.do(t, "getDelivery", 404, at(webhook, "evt_1"))
	first := h.do(t, "listDeliveries", 200, at(webhook), query("limit=1"))
	h.do(t, "listDeliveries", 200, at(webhook), query("limit=1&cursor="+first.text("nextCursor")))
	day := time.Now().Add(24 * time.Hour).Format(time.RFC3339)
	for text, events := range map[string][]string{
		"":                                 {skipped, delivered, dead},
		"state=dead&state=skipped":         {skipped, dead},
		"failed=true":                      {skipped, dead},
		"failed=true&state=dead":           {dead},
		"failed=yes":                       nil,
		"state=pending":                    {},
		"from=2026-01-01&to=2999-12-31":    {skipped, delivered, dead},
		"to=2026-01-01T00:00:00%2B01:00":   {},
		"from=" + url.QueryEscape(day):     {},
		"state=delivered&from=2026-01-01Z": nil,
		"state=done":                       nil,
		"state=":                           nil,
		"from=1969-12-31":                  nil,
		"from=2026-01-02&to=2026-01-01":    nil,
		"from=2026-01-01&from=2026-01-01":  nil,
		"to=tomorrow":                      nil,
		"cursor=abc":                       nil,
	} {
		status := 200
		if events == nil {
			status = 400
		}
		listed := h.do(t, "listDeliveries", status, at(webhook), query(text))
		data, _ := listed.object()["data"].([]any)
		if status == 200 && len(data) != len(events) || !contains(listed.body, events...) {
			t.Errorf("want %v: %v", events, listed)
		}
	}

	h.do(t, "updateWebhook", 200, at(webhook), body(`{"active":true}`))
	h.do(t, "redeliver", 202, at(webhook, dead))
	h.settled(t, webhook, dead, "delivered")
	h.do(t, "redeliver", 202, at(webhook, dead), body(`{}`))
	h.do(t, "redeliver", 400, at(webhook, dead), body(`{"at":"once"}`))
	h.do(t, "redeliver", 404, at(webhook, "evt_1"))
	_, reader := h.key("reader", scopes.Of(scopes.FilesRead))
	h.do(t, "redeliver", 403, at(webhook, dead), as(reader))

	began := h.do(t, "createRecovery", 202, at(webhook))
	recovery := began.text("id")
	if !strings.HasSuffix(began.header.Get("Location"), "/recoveries/"+recovery) {
		t.Errorf("the Location is another: %v", began)
	}
	eventually(t, "the recovery is done", func() bool {
		return h.do(t, "getRecovery", 200, at(webhook, recovery)).object()["done"] == true
	})
	h.settled(t, webhook, skipped, "delivered")
	h.recoverStep(t, webhook, body(`{"from":"2026-01-01","to":"2026-01-02","states":["delivered","dead"]}`))
	h.recoverStep(t, webhook, body(`{"from":null,"to":null,"states":null}`))
	eventually(t, "a second recovery at a time is refused", func() bool {
		refused := false
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			wg.Go(func() {
				done, err := h.exchange(h.prepare("createRecovery", at(webhook)))
				mu.Lock()
				defer mu.Unlock()
				if err != nil || done.status != 202 && done.status != 409 {
					t.Errorf("got %v, %v", done, err)
				}
				refused = refused || done != nil && done.status == 409
			})
		}
		wg.Wait()
		return refused
	})
	h.do(t, "createRecovery", 400, at(webhook), body(`{"from":"2026-01-02","to":"2026-01-01"}`))
	h.do(t, "createRecovery", 400, at(webhook), body(`{"states":["lost"]}`))
	h.do(t, "getRecovery", 404, at(webhook, noRecovery))
	h.do(t, "deleteWebhook", 204, at(webhook))
}

const noRecovery = "rec_01JZ5T3K9QWERTYASDFGHJKMNP"

// recoverStep creates a recovery and waits until it is done.
func (h *host) recoverStep(t *testing.T, webhook string, how ...func(*call)) {
	t.Helper()
	job := h.do(t, "createRecovery", 202, append(how, at(webhook))...).text("id")
	eventually(t, "the recovery is done", func() bool {
		return h.do(t, "getRecovery", 200, at(webhook, job)).object()["done"] == true
	})
}
