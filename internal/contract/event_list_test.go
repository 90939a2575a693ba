package contract

import (
	"net/http"
	"slices"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// testEventList publishes an event of each type, reads the bodies of the events, and pages through
// the list.
func (h *host) testEventList(t *testing.T) {
	webhook := h.webhook(t, "")
	_, reader := h.key("reader", scopes.Of(scopes.FilesRead))
	var published []string
	for _, data := range everyEvent() {
		event := h.publish(data)
		published = append(published, event)
		sent := h.do(t, "getDeliveryBody", 200, at(webhook, event))
		same := h.do(t, "getEventBody", 200, at(event))
		if string(sent.body) != string(same.body) || sent.text("id") != event {
			t.Errorf("%v, and %v", sent, same)
		}
		status := 403
		if sent.text("type") == "files.expiring" {
			status = 200
		}
		h.do(t, "getDeliveryBody", status, at(webhook, event), as(reader))
		h.do(t, "explainDelivery", 403, at(webhook, event), as(reader))
		if x := h.do(t, "explainDelivery", 200, at(webhook, event)); x.text("eventId") != event {
			t.Errorf("%v explains another event than %s", x, event)
		}
		h.do(t, "getEventBody", status, at(event), as(reader))
		h.do(t, "getEventBody", 200, at(event), func(c *call) { c.method = http.MethodHead })
	}
	h.do(t, "getDeliveryBody", 404, at(webhook, "evt_1"))
	h.do(t, "explainDelivery", 404, at(webhook, "evt_1"))
	h.do(t, "getEventBody", 404, at("evt_1"))

	var followed []string
	cursor := ""
	for {
		page := h.do(t, "listEvents", 200, query("since=2026-01-01&limit=3"+cursor))
		for _, event := range page.object()["data"].([]any) {
			followed = append(followed, event.(map[string]any)["id"].(string))
		}
		if cursor = "&cursor=" + page.text("nextCursor"); page.object()["hasMore"] == false {
			break
		}
	}
	if n := len(followed) - len(published); n < 0 || !slices.Equal(followed[n:], published) {
		t.Errorf("followed %v, want %v at the end", followed, published)
	}
	later := h.publish(everyEvent()[0])
	if page := h.do(t, "listEvents", 200, query("since=2026-01-01"+cursor)); !contains(page.body, later) || len(page.object()["data"].([]any)) != 1 {
		t.Errorf("want %s: %v", later, page)
	}
	newest := h.do(t, "listEvents", 200, query("limit=1"))
	h.do(t, "listEvents", 200, query("limit=1&cursor="+newest.text("nextCursor")))
	h.do(t, "listEvents", 403, query("type=balance.low"), as(reader))
	for text, status := range map[string]int{
		"type=balance.low&type=files.expiring": 200, "type=teams.of_old": 200, "from=2026-01-01&to=2999-12-31": 200, "since=2026-01-01&to=2026-01-02": 200,
		"type=": 400, "type=Balance": 400, "since=tomorrow": 400, "since=2026-01-01&from=2026-01-01": 400, "from=2026-01-02&to=2026-01-01": 400,
		"webhook=" + webhook: 200, "webhook=wh_1": 400, "webhook=wh_01JZ5T3K9QWERTYASDFGHJKMNP": 404,
		"since=2026-01-01&wait=30": 200, "wait=30": 400, "since=2026-01-01&wait=0": 400, "since=2026-01-01&wait=31": 400,
		"cursor=abc": 400, "limit=0": 400, "since=2026-01-01&cursor=" + newest.text("nextCursor"): 400,
	} {
		h.do(t, "listEvents", status, query(text))
	}
	h.do(t, "deleteWebhook", 204, at(webhook))
}
