package httpapi_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

const newWebhook = `{"url":"https://example.com/h","events":["balance.low"],"balanceThreshold":"0.5"}`

func TestUpdateWebhook(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	made := h.do("POST", webhooksPath, admin, newWebhook).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	shown := map[string]string{
		"url": `"https://example.com/h"`, "events": `["balance.low"]`, "active": "true", "balanceThreshold": `"0.5"`,
	}
	tags := make(map[string]bool)
	for _, step := range []struct {
		body   string
		change map[string]string
	}{
		{`{}`, nil},
		{`{"url":"https://example.org/?a&b"}`, map[string]string{"url": `"https://example.org/?a&b"`}},
		{`{"events":["files.expiring","balance.low","files.expiring"]}`, map[string]string{"events": `["files.expiring","balance.low"]`}},
		{`{"active":false}`, map[string]string{"active": "false"}},
		{`{"balanceThreshold":"12.50"}`, map[string]string{"balanceThreshold": `"12.5"`}},
		{`{"balanceThreshold":null}`, map[string]string{"balanceThreshold": "null"}},
		{`{"url":"https://example.com/h","events":["balance.low"],"active":true,"balanceThreshold":"1"}`, map[string]string{
			"url": `"https://example.com/h"`, "events": `["balance.low"]`, "active": "true", "balanceThreshold": `"1"`,
		}},
	} {
		maps.Copy(shown, step.change)
		want := fmt.Sprintf(`{"id":%q,"url":%s,"events":%s,"active":%s,"createdAt":%q,"balanceThreshold":%s,"offReason":null,"failingSince":null,"previousSecretExpiresAt":null}`,
			made.text("id"), shown["url"], shown["events"], shown["active"], made.text("createdAt"), shown["balanceThreshold"])
		got := h.do("PATCH", one, admin, step.body).want(200, "")
		if got.body != want {
			t.Errorf("%s: got  %s\nwant %s", step.body, got.body, want)
		}
		tag, read := got.header.Get("ETag"), h.do("GET", one, admin, "").want(200, "")
		if read.body != want || read.header.Get("ETag") != tag || tag == "" || tags[tag] {
			t.Errorf("%s: read as %s with tag %s, want %s, a new one", step.body, read.body, read.header.Get("ETag"), tag)
		}
		tags[tag] = true
	}
}

// TestUpdateWebhookFields checks that invalid changes are refused.
func TestUpdateWebhookFields(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	before := h.do("GET", one, admin, "").want(200, "").body
	for body, want := range map[string]string{
		``:                               "",
		`null`:                           "body must be one JSON object",
		`{"url":null}`:                   "url must be a string, not null",
		`{"url":"http://example.com"}`:   "url must begin with https://",
		`{"url":"https://127.0.0.1"}`:    "url must be a public address",
		`{"url":""}`:                     "url is required",
		`{"events":null}`:                "events must be an array of strings, not null",
		`{"events":[]}`:                  "events must be one or more of",
		`{"events":["webhook.test"]}`:    `unknown: "webhook.test"`,
		`{"active":null}`:                "active must be a boolean, not null",
		`{"active":"false"}`:             "active must be a boolean, not a string",
		`{"active":0}`:                   "active must be a boolean, not a number",
		`{"balanceThreshold":0.5}`:       "balanceThreshold must be a string, not a number",
		`{"balanceThreshold":"0"}`:       "balanceThreshold must be greater than 0",
		`{"active":true,"active":true}`:  "active must be given only once",
		`{"secret":"x"}`:                 `body has an unknown field "secret"`,
		`{"Active":true}`:                `body has an unknown field "Active"`,
		`{"active":false,"url":"x"}`:     "url must",
		`{"active":false,"events":[""]}`: "events must",
	} {
		got := h.do("PATCH", one, admin, body)
		if body == "" {
			got.want(415, "UNSUPPORTED_MEDIA_TYPE")
		} else if got.want(400, "VALIDATION_ERROR"); !strings.Contains(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", body, got.message(), want)
		}
	}
	if after := h.do("GET", one, admin, "").want(200, "").body; after != before {
		t.Errorf("a refused change left something behind: %s", after)
	}
}

// TestWebhookIfMatch sends If-Match with PATCH, rotate-secret and DELETE.
func TestWebhookIfMatch(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	first := h.do("GET", one, admin, "").header.Get("ETag")
	second := h.do("PATCH", one, admin, `{"active":false}`, ifMatch(first)).want(200, "").header.Get("ETag")
	third := h.do("POST", one+"/rotate-secret", admin, "", ifMatch(`"x", `+second)).want(200, "").header.Get("ETag")
	if first == second || second == third {
		t.Errorf("tags: %s, %s, %s", first, second, third)
	}
	before := h.do("GET", one, admin, "").body
	for _, tags := range []string{first, second, "W/" + third, `"x"`} {
		h.do("PATCH", one, admin, `{"active":true}`, ifMatch(tags)).want(412, "PRECONDITION_FAILED")
		h.do("POST", one+"/rotate-secret", admin, "", ifMatch(tags)).want(412, "PRECONDITION_FAILED")
		h.do("DELETE", one, admin, "", ifMatch(tags)).want(412, "PRECONDITION_FAILED")
	}
	for _, malformed := range []string{"x", `"x`, ""} {
		for _, got := range []reply{
			h.do("PATCH", one, admin, `{"active":true}`, ifMatch(malformed)), h.do("POST", one+"/rotate-secret", admin, "", ifMatch(malformed)),
			h.do("DELETE", one, admin, "", ifMatch(malformed)),
		} {
			if got.want(400, "VALIDATION_ERROR"); !strings.HasPrefix(got.message(), "If-Match must ") {
				t.Errorf("%q: got message %q", malformed, got.message())
			}
		}
	}
	if after := h.do("GET", one, admin, ""); after.body != before || after.header.Get("ETag") != third {
		t.Errorf("a refused change left something behind: %s, want %s", after.body, before)
	}
	h.do("PATCH", one, admin, `{"active":true}`, ifMatch("*")).want(200, "")
	last := h.do("GET", one, admin, "").header.Get("ETag")
	h.do("DELETE", one, admin, "", ifMatch(last)).want(204, "")
	h.do("DELETE", one, admin, "", ifMatch("*")).want(404, "NOT_FOUND")
	h.do("PATCH", one, admin, `{}`, ifMatch(last)).want(404, "NOT_FOUND")
}

func TestUpdateWebhook_ConcurrentWithSameTag_OneSucceeds(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	for round := range 5 {
		tag := h.do("GET", one, admin, "").header.Get("ETag")
		var wg sync.WaitGroup
		statuses := make([]int, 8)
		for i := range statuses {
			wg.Go(func() {
				statuses[i] = h.do("PATCH", one, admin, fmt.Sprintf(`{"balanceThreshold":"%d"}`, 1+i+8*round), ifMatch(tag)).status
			})
		}
		wg.Wait()
		made := 0
		for i, status := range statuses {
			switch got := h.do("GET", one, admin, "").text("balanceThreshold"); {
			case status == 200 && got == fmt.Sprint(1+i+8*round):
				made++
			case status != 412:
				t.Errorf("got %d for threshold %d, and it is %s", status, 1+i+8*round, got)
			}
		}
		if made != 1 {
			t.Errorf("%d changes were made: %v", made, statuses)
		}
	}
}

func TestRotateWebhookSecret(t *testing.T) {
	c := newClock()
	config := c.config()
	config.Webhooks.Now = c.Now
	h := serve(t, config)
	admin := h.admin(alice)
	made := h.do("POST", webhooksPath, admin, newWebhook).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	seen := map[string]bool{made.text("secret"): true}
	for body, until := range map[string]string{
		"": `"2026-02-01T12:00:00.000Z"`, "{}": `"2026-02-01T12:00:00.000Z"`, `{"graceSeconds":null}`: `"2026-02-01T12:00:00.000Z"`,
		`{"graceSeconds":60}`: `"2026-01-31T12:01:00.000Z"`, `{"graceSeconds":31536000}`: `"2027-01-31T12:00:00.000Z"`, `{"graceSeconds":0}`: "null",
	} {
		got := h.do("POST", one+"/rotate-secret", admin, body).want(200, "")
		secret := got.text("secret")
		if _, err := signing.ParseSecret(secret); err != nil || seen[secret] || !strings.HasSuffix(got.body, `,"previousSecretExpiresAt":`+until+`}`) {
			t.Errorf("%s: got %s", body, got.body)
		}
		seen[secret] = true
		shown := strings.Replace(got.body, fmt.Sprintf(`"secret":%q,`, secret), "", 1)
		if read := h.do("GET", one, admin, ""); read.body != shown || read.header.Get("ETag") != got.header.Get("ETag") {
			t.Errorf("%s: read as %s, want %s", body, read.body, shown)
		}
	}
	for body, want := range map[string]string{
		`{"graceSeconds":-1}`: "graceSeconds must be", `{"graceSeconds":31536001}`: "graceSeconds must be", `{"graceSeconds":1.5}`: "graceSeconds must be",
		`{"graceSeconds":"60"}`: "graceSeconds must be", `{"grace":1}`: `body has an unknown field "grace"`,
	} {
		if got := h.do("POST", one+"/rotate-secret", admin, body).want(400, "VALIDATION_ERROR"); !strings.Contains(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", body, got.message(), want)
		}
	}
	h.do("POST", one+"/rotate-secret", admin, `{"graceSeconds":60}`).want(200, "")
	tag := h.do("GET", one, admin, "").header.Get("ETag")
	c.Add(time.Minute)
	if got := h.do("GET", one, admin, ""); got.object()["previousSecretExpiresAt"] != nil || got.header.Get("ETag") != tag {
		t.Errorf("after the grace: %s with tag %s, want %s", got.body, got.header.Get("ETag"), tag)
	}
}
