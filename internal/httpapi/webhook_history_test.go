package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// await repeats a GET until done returns true, and returns the last reply.
func (h *host) await(path, token string, done func(reply) bool) reply {
	h.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if got := h.do("GET", path, token, "").want(200, ""); done(got) {
			return got
		} else if time.Now().After(end) {
			h.Fatalf("%s is still %s", path, got.body)
		}
	}
}

// publish publishes a balance.low event in alice's account.
func (h *host) publish(id string) {
	h.Helper()
	event := webhooks.Event{ID: id, Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := h.api.Webhooks.Publish(h.Context(), event); err != nil {
		h.Fatal(err)
	}
}

// ids returns the given field of each item in a list.
func (r reply) ids(field string) []string {
	r.Helper()
	var list struct{ Data []map[string]any }
	if err := json.Unmarshal([]byte(r.body), &list); err != nil {
		r.Fatal(err)
	}
	ids := []string{}
	for _, item := range list.Data {
		ids = append(ids, item[field].(string))
	}
	return ids
}

const attemptForm = `\{"number":%d,"startedAt":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","durationMs":\d+(\.\d+)?,%s\}`

// TestSendTestEvent sends test events to a receiver that accepts them and to one that does not,
// while the webhook is disabled and Run is not running.
func TestSendTestEvent(t *testing.T) {
	r := newReceiver(t)
	var status atomic.Int64
	r.status = func() int { return int(status.Load()) }
	h := serve(t, storageapi.Config{Webhooks: r.config()})
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"%s/hook","events":["balance.low"]}`, r.URL)).want(201, "").text("id")
	h.do("PATCH", one, admin, `{"active":false}`).want(200, "")
	before := h.do("GET", one, admin, "").body
	for code, rest := range map[int]string{
		200: `"status":200,"errorClass":null,"error":null,"response":null`,
		410: `"status":410,"errorClass":"status","error":"status 410","response":null`,
	} {
		status.Store(int64(code))
		for _, body := range []string{"", "{}"} {
			got := h.do("POST", one+"/test", admin, body).want(200, "")
			form := `^\{"id":"evt_[0-9A-Z]{26}","type":"webhook\.test","attempt":` + fmt.Sprintf(attemptForm, 1, rest) + `\}$`
			if !regexp.MustCompile(form).MatchString(got.body) {
				t.Errorf("got %s, want %s", got.body, form)
			}
			request := <-r.received
			sent, _ := io.ReadAll(request.Body)
			if !strings.HasPrefix(string(sent), fmt.Sprintf(`{"id":%q,"type":"webhook.test",`, got.text("id"))) {
				t.Errorf("received %s", sent)
			}
		}
	}
	status.Store(200)
	got := h.do("POST", one+"/test", admin, `{"type":"files.expiring"}`).want(200, "")
	if sent, _ := io.ReadAll((<-r.received).Body); got.text("type") != "files.expiring" || !strings.Contains(string(sent), `"type":"files.expiring"`) {
		t.Errorf("got %s, received %s", got.body, sent)
	}
	if got := h.do("POST", one+"/test", admin, `{"type":"nope"}`).want(400, "VALIDATION_ERROR"); got.field() != "type" {
		t.Errorf("got %s", got.body)
	}
	if after := h.do("GET", one, admin, "").body; after != before {
		t.Errorf("a test event changed the webhook to %s", after)
	}
	if got := h.do("GET", one+"/deliveries", admin, "").ids("eventId"); len(got) != 0 {
		t.Errorf("listed %v", got)
	}

	// Only one test event may run at a time.
	blocked, goOn := make(chan bool), make(chan bool)
	r.status = func() int {
		close(blocked)
		<-goOn
		return 200
	}
	first := make(chan reply)
	go func() { first <- h.do("POST", one+"/test", admin, "") }()
	<-blocked
	h.do("POST", one+"/test", admin, "").want(409, "CONFLICT")
	close(goOn)
	(<-first).want(200, "")
}

// TestDeliveriesOverHTTP lists deliveries in all states, gets each of them, and redelivers one.
func TestDeliveriesOverHTTP(t *testing.T) {
	r := newReceiver(t)
	var status atomic.Int64
	r.status = func() int { return int(status.Load()) }
	config := storageapi.Config{Webhooks: r.config()}
	config.Webhooks.Retry.Delays = []time.Duration{} // only one attempt
	h := serve(t, config)
	admin := h.admin(alice)
	made := h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"%s/hook","events":["balance.low"]}`, r.URL)).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	list := one + "/deliveries"
	go func() { _ = h.api.Run(t.Context()) }()
	state := func(id, want string) reply {
		return h.await(list+"/"+id, admin, func(got reply) bool { return got.text("state") == want })
	}
	status.Store(200)
	h.publish("delivered")
	state("delivered", "delivered")
	status.Store(500)
	h.publish("dead")
	dead := state("dead", "dead")
	h.do("PATCH", one, admin, `{"active":false}`).want(200, "")
	h.publish("skipped")
	h.do("POST", list+"/skipped/redeliver", admin, "").want(202, "")
	h.publish("other")
	from := dead.text("publishedAt")

	attempt := fmt.Sprintf(attemptForm, 1, `"status":500,"errorClass":"status","error":"status 500","response":null`)
	head := `\{"eventId":"dead","type":"balance\.low","state":"dead","publishedAt":"` + from + `","bodyKeptUntil":"[^"]+","nextAttemptAt":null,`
	if form := "^" + head + `"attempts":\[` + attempt + `\]\}$`; !regexp.MustCompile(form).MatchString(dead.body) {
		t.Errorf("got %s, want %s", dead.body, form)
	}
	listed := h.do("GET", list+"?state=dead", admin, "").want(200, "").body
	if form := `^\{"data":\[` + head + `"attemptCount":1,"lastAttempt":` + attempt + `\}\],"nextCursor":null,"hasMore":false\}$`; !regexp.MustCompile(form).MatchString(listed) {
		t.Errorf("got %s, want %s", listed, form)
	}
	pending := h.do("GET", list+"?state=pending", admin, "").want(200, "").body
	if form := `^\{"data":\[\{"eventId":"skipped",.*,"nextAttemptAt":"[^"]+","attemptCount":0,"lastAttempt":null\}\],`; !regexp.MustCompile(form).MatchString(pending) {
		t.Errorf("got %s, want %s", pending, form)
	}

	for query, want := range map[string][]string{
		"":                                  {"other", "skipped", "dead", "delivered"},
		"state=pending&state=skipped":       {"other", "skipped"},
		"state=dead&state=dead":             {"dead"},
		"state=delivered":                   {"delivered"},
		"failed=true":                       {"other", "dead"}, // "other" was skipped
		"failed=false":                      {"other", "skipped", "dead", "delivered"},
		"failed=true&state=pending":         {},
		"type=balance.low&state=dead":       {"dead"},
		"type=files.expiring":               {},
		"type=files.expiring&failed=true":   {},
		"to=" + from:                        {"delivered"},
		"from=" + from:                      {"other", "skipped", "dead"},
		"from=" + from + "&state=delivered": {},
		"to=1970-01-01":                     {},
		"from=1970-01-01&to=2999-01-01":     {"other", "skipped", "dead", "delivered"},
		"from=" + url.QueryEscape("2020-01-01T00:00:00+01:00"): {"other", "skipped", "dead", "delivered"},
	} {
		if diff := cmp.Diff(want, h.do("GET", list+"?"+query, admin, "").want(200, "").ids("eventId")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	var walked []string
	for cursor := ""; ; {
		got := h.do("GET", list+"?limit=1"+cursor, admin, "").want(200, "")
		walked = append(walked, got.ids("eventId")...)
		if got.object()["hasMore"] == false {
			break
		}
		cursor = "&cursor=" + got.text("nextCursor")
	}
	if diff := cmp.Diff([]string{"other", "skipped", "dead", "delivered"}, walked); diff != "" {
		t.Errorf("in parts (-want +got):\n%s", diff)
	}
	cursor := h.do("GET", list+"?limit=1", admin, "").text("nextCursor")
	second := h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	h.do("GET", webhooksPath+"/"+second+"/deliveries?cursor="+cursor, admin, "").want(400, "VALIDATION_ERROR")
	for query, want := range map[string]string{
		"limit=0": "limit must", "state=": "state must be pending, delivered, dead or skipped", "state=Dead": "state must", "state=dead,skipped": "state must",
		"type=": "type must be an event type", "type=Balance": "type must",
		"failed=": "failed must be true or false", "failed=1": "failed must", "failed=true&failed=true": "failed must",
		"from=x": "from must be an RFC 3339", "to=": "to must be an RFC 3339", "from=1969-12-31": "from must not be before 1970", "to=0001-01-01": "to must",
		"from=2020-01-01&from=2020-01-01": "from must be given only once", "from=2020-01-02&to=2020-01-02": "from must be before to", "cursor=x": "cursor must", "a;b": "query must",
	} {
		if got := h.do("GET", list+"?"+query, admin, "").want(400, "VALIDATION_ERROR"); !strings.HasPrefix(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", query, got.message(), want)
		}
	}

	// Redeliver again, with the webhook enabled.
	h.do("PATCH", one, admin, `{"active":true}`).want(200, "")
	status.Store(200)
	again := h.do("POST", list+"/dead/redeliver", admin, "{}").want(202, "")
	if again.header.Get("Location") != "" || again.text("eventId") != "dead" {
		t.Errorf("got %s, at %q", again.body, again.header.Get("Location"))
	}
	if got := state("dead", "delivered"); strings.Count(got.body, `"number":`) != 2 {
		t.Errorf("got %s", got.body)
	}
	for _, id := range []string{"nothing", "evt_" + someULID, "%00", strings.Repeat("a", 200), "a%2Fb", "é"} {
		h.do("GET", list+"/"+id, admin, "").want(404, "NOT_FOUND")
		if got := h.do("POST", list+"/"+id+"/redeliver", admin, "").want(404, "NOT_FOUND"); !strings.Contains(got.message(), "no delivery") {
			t.Errorf("%s: got message %q", id, got.message())
		}
	}
	h.do("GET", webhooksPath+"/"+second+"/deliveries/dead", admin, "").want(404, "NOT_FOUND")
}

// TestRecoveriesOverHTTP starts a recovery of skipped deliveries and polls its progress.
func TestRecoveriesOverHTTP(t *testing.T) {
	r := newReceiver(t)
	h := serve(t, storageapi.Config{Webhooks: r.config()})
	admin := h.admin(alice)
	made := h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"%s/hook","events":["balance.low"],"balanceThreshold":"1"}`, r.URL)).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	h.do("PATCH", one, admin, `{"active":false}`).want(200, "")
	for i := range 3 {
		h.publish(fmt.Sprint("evt_", i))
	}
	h.do("PATCH", one, admin, `{"active":true}`).want(200, "")
	go func() { _ = h.api.Run(t.Context()) }()

	job := h.do("POST", one+"/recoveries", admin, `{"from":"2020-01-01","states":["skipped","skipped"]}`).want(202, "")
	id, location := job.text("id"), job.header.Get("Location")
	form := `^\{"id":"rec_[0-9A-Z]{26}","webhookId":"` + made.text("id") + `","states":\["skipped"\],"from":"2020-01-01T00:00:00.000Z","to":"[^"]+","createdAt":"[^"]+","recovered":\d,"done":(true|false)\}$`
	if !regexp.MustCompile(form).MatchString(job.body) || location != one+"/recoveries/"+id {
		t.Errorf("got %s, want %s; at %s", job.body, form, location)
	}
	done := h.await(location, admin, func(got reply) bool { return got.object()["done"] == true })
	if got := done.object()["recovered"]; got != 3.0 {
		t.Errorf("recovered %v", got)
	}
	for range 3 {
		<-r.received
	}
	for _, body := range []string{"", "{}", `{"from":null,"to":null,"states":null}`, `{"to":"2020-01-01"}`, `{"states":["delivered","dead"]}`, `{"states":["pending"]}`} {
		got := h.do("POST", one+"/recoveries", admin, body).want(202, "")
		if all := !strings.Contains(body, "["); all != strings.Contains(got.body, `"states":["dead","skipped"]`) {
			t.Errorf("%s: got %s", body, got.body)
		}
		h.await(got.header.Get("Location"), admin, func(got reply) bool { return got.object()["done"] == true })
	}
	for body, want := range map[string]string{
		`{"states":[]}`: "states must name at least one", `{"states":["lost"]}`: `states must be one or more of dead, skipped, delivered, pending; unknown: "lost"`, `{"states":"dead"}`: "states must be an array",
		`{"from":"2999-01-01"}`: "from must not be in the future", `{"to":"2999-01-01"}`: "to must not be in the future", `{"from":1}`: "from must be a string",
		`{"from":"2020-01-02","to":"2020-01-02"}`: "from must be before to", `{"to":"0001-01-01"}`: "to must not be before 1970", `{"since":null}`: "body has an unknown field",
	} {
		if got := h.do("POST", one+"/recoveries", admin, body).want(400, "VALIDATION_ERROR"); !strings.HasPrefix(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", body, got.message(), want)
		}
	}
	other := h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	for _, path := range []string{one + "/recoveries/rec_" + someULID, one + "/recoveries/x", one + "/recoveries/%00", webhooksPath + "/" + other + "/recoveries/" + id} {
		if got := h.do("GET", path, admin, "").want(404, "NOT_FOUND"); !strings.Contains(got.message(), "no recovery") {
			t.Errorf("%s: got message %q", path, got.message())
		}
	}
}

// Stores make cursors from numbers that count the events of all accounts.
func TestDeliveries_Cursors_RevealNoNumbers(t *testing.T) {
	for name, config := range map[string]storageapi.Config{
		"memory": {Store: memory.New()}, "bolt": {Path: filepath.Join(t.TempDir(), "storage.db")},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, config)
			admin := h.admin(alice)
			list := webhooksPath + "/" + h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id") + "/deliveries?limit=1"
			for i := range 3 {
				h.publish(fmt.Sprint("evt_", i))
			}
			cursor := h.do("GET", list, admin, "").text("nextCursor")
			decoded, err := base64.RawURLEncoding.DecodeString(cursor)
			_, rest, found := strings.Cut(string(decoded), "/")
			if _, isNumber := strconv.ParseUint(rest, 10, 64); err != nil || !found || isNumber == nil {
				t.Errorf("the cursor is %q, %v", decoded, err)
			}
			if got := h.do("GET", list+"&cursor="+cursor, admin, "").ids("eventId"); len(got) != 1 || got[0] != "evt_1" {
				t.Errorf("after it come %v", got)
			}
			made := webhooksPath + "/" + strings.Split(list, "/")[4] + "/deliveries?cursor="
			forged := base64.RawURLEncoding.EncodeToString([]byte(strings.Split(list, "/")[4] + "/2"))
			if got := h.do("GET", made+forged, admin, "").want(200, "").ids("eventId"); len(got) != 0 {
				t.Errorf("after one made up come %v", got)
			}
		})
	}
}
