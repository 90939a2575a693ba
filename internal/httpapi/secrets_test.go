package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

// The test searches the log and all responses, except for responses that must show the secret.
func TestSecrets_AllOperations_AppearOnlyInTheirOwnResponses(t *testing.T) {
	r, faults, log := newReceiver(t), newFaulty(), new(testlog.Book)
	config := storageapi.Config{Store: faults, Logger: log.Logger(), Webhooks: r.config()}
	config.Webhooks.Retry.Delays = []time.Duration{} // only one attempt
	var mu sync.Mutex
	var observed []string
	note := func(event any) {
		mu.Lock()
		defer mu.Unlock()
		observed = append(observed, fmt.Sprintf("%+v", event))
	}
	config.Observe = observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) { note(a) },
		Published:     func(_ context.Context, p observe.Publication) { note(p) },
		Changed:       func(n audit.Entry) { note(n) },
		Claimed:       func(c observe.Claim) { note(c) },
		Attempted:     func(a observe.Attempt) { note(a) },
		Settled:       func(s observe.Settlement) { note(s) },
	}
	h := serve(t, config)
	var shown []string
	see := func(got reply) { shown = append(shown, got.body, fmt.Sprint(got.header)) }

	admin := h.admin(alice)
	made := h.do("POST", keysPath, admin, newKey).want(201, "")
	rotated := h.do("POST", keysPath+"/"+made.text("id")+"/rotate", admin, "").want(200, "")
	const urlSecret, headerSecret, newHeaderSecret = "s3cr3tPath", "h3ader-s3cret", "n3w-h3ader"
	header := func(value string) string {
		return fmt.Sprintf(`"headers":{"Authorization":{"value":%q,"secret":true}}`, value)
	}
	hook := h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"%s/%s?q=%s","events":["balance.low"],%s}`, r.URL, urlSecret, urlSecret, header("Bearer "+headerSecret))).want(201, "")
	if strings.Contains(hook.body, headerSecret) {
		t.Errorf("the header's value is in %s", hook.body)
	}
	see(h.do("PATCH", keysPath+"/"+made.text("id"), admin, `{"name":"renamed"}`).want(200, ""))
	see(h.do("PATCH", keysPath+"/"+made.text("id"), admin, `{"name":"again"}`, ifMatch(`"`+rotated.text("key")+`"`)).want(412, "PRECONDITION_FAILED"))
	see(h.do("PATCH", keysPath+"/"+made.text("id"), admin, `{"name":"again"}`, ifMatch(rotated.text("key"))).want(400, "VALIDATION_ERROR"))
	token, secret := made.text("key"), hook.text("secret")
	oneHook := webhooksPath + "/" + hook.text("id")
	changed := h.do("PATCH", oneHook, admin, "{"+header(newHeaderSecret)+"}").want(200, "")
	if changed.header.Get("Etag") == h.do("PATCH", oneHook, admin, "{"+header(newHeaderSecret+"2")+"}").want(200, "").header.Get("Etag") {
		t.Error("a changed header does not change the ETag")
	}
	rotatedHook := h.do("POST", oneHook+"/rotate-secret", admin, "").want(200, "")
	newSecret := rotatedHook.text("secret")
	if rotatedHook.header.Get("Cache-Control") != "no-store" {
		t.Error("an answer with a new secret may be cached")
	}
	if made.header.Get("Cache-Control") != "no-store" || rotated.header.Get("Cache-Control") != "no-store" || hook.header.Get("Cache-Control") != "no-store" {
		t.Error("an answer with a secret may be cached")
	}

	for _, step := range steps(made.text("id"), hook.text("id")) {
		if step.method == "POST" {
			continue
		}
		faults.before = func(method string) error {
			if method == step.store {
				return errors.New("broken")
			}
			return nil
		}
		see(h.do(step.method, step.path, admin, step.body))
		faults.before = func(string) error { return nil }
		if step.method == "GET" && !strings.HasPrefix(step.path, webhooksPath) { // webhook routes show the URL of the receiver to its owner
			see(h.do(step.method, step.path, admin, ""))
		}
	}
	for _, body := range []string{
		fmt.Sprintf(`{"name":"a","scopes":["files:read"],%q:1}`, token),
		fmt.Sprintf(`{"name":"a","scopes":["files:read"],"expiresAt":%q}`, token),
		fmt.Sprintf(`{"name":%q,"scopes":%q}`, token, token),
		fmt.Sprintf(`{%q`, token),
	} {
		see(h.do("POST", keysPath, admin, body).want(400, "VALIDATION_ERROR"))
	}
	see(h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"https://a:%s@example.com","events":["balance.low"],"balanceThreshold":%q}`, token, secret)).want(400, "VALIDATION_ERROR"))
	see(h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"https://a:%s@example.com","events":["balance.low"]}`, token)).want(400, "VALIDATION_ERROR"))
	for _, body := range []string{
		fmt.Sprintf(`{"url":"http://%s.example.com/%s"}`, newSecret, urlSecret), fmt.Sprintf(`{"balanceThreshold":%q}`, newSecret),
		fmt.Sprintf(`{%q:1}`, newSecret), fmt.Sprintf(`{"active":%q}`, newSecret), fmt.Sprintf(`{"secret":%q}`, newSecret),
		"{" + header(newHeaderSecret+"\r\nX-A: 1") + "}", "{" + header(newHeaderSecret+"é") + "}", fmt.Sprintf(`{"headers":%q}`, newHeaderSecret),
		fmt.Sprintf(`{"headers":{"X-A":%q}}`, newHeaderSecret), fmt.Sprintf(`{"headers":{"X-A":{"value":[%q]}}}`, newHeaderSecret),
	} {
		see(h.do("PATCH", oneHook, admin, body).want(400, "VALIDATION_ERROR"))
	}
	for _, chosen := range []string{secret + "x", strings.TrimPrefix(secret, "whsec_"), secret + secret} {
		see(h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"https://example.com","events":["balance.low"],"secret":%q}`, chosen)).want(400, "VALIDATION_ERROR"))
	}
	see(h.do("PATCH", oneHook, admin, "{}", ifMatch(`"`+newSecret+`"`)).want(412, "PRECONDITION_FAILED"))
	see(h.do("PATCH", oneHook, admin, "{}", ifMatch(newSecret)).want(400, "VALIDATION_ERROR"))
	see(h.do("POST", oneHook+"/rotate-secret", admin, fmt.Sprintf(`{"graceSeconds":%q}`, newSecret)).want(400, "VALIDATION_ERROR"))
	see(h.do("POST", oneHook+"/recoveries", admin, fmt.Sprintf(`{"from":%q}`, newSecret)).want(400, "VALIDATION_ERROR"))
	see(h.do("GET", oneHook+"/deliveries?cursor="+newSecret+"&from="+newSecret, admin, "").want(400, "VALIDATION_ERROR"))
	see(h.do("GET", oneHook+"/deliveries/"+strings.Trim(newSecret, "="), admin, "").want(404, "NOT_FOUND"))
	see(h.do("GET", "/v2/"+token+"?"+token, admin, "").want(404, "NOT_FOUND"))
	see(h.do("GET", keysPath+"?cursor="+token+"&limit="+token, admin, "").want(400, "VALIDATION_ERROR"))
	see(h.do("GET", keysPath+"/"+token, token+"x", "").want(401, "UNAUTHORIZED"))
	see(h.do("GET", webhooksPath, token, "").want(403, "FORBIDDEN"))

	// Failed deliveries log the webhook's URL. At this point both secrets sign.
	r.status = func() int { return 500 }
	see(h.do("POST", oneHook+"/test", admin, "").want(200, ""))
	if signatures := (<-r.received).Header.Get("X-Service-Signature"); strings.Count(signatures, ",") != 1 {
		t.Errorf("signed %q, want two signatures", signatures)
	}
	go func() { _ = h.api.Run(t.Context()) }()
	if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		t.Fatal(err)
	}
	<-r.received
	h.await(oneHook+"/deliveries", admin, func(got reply) bool { return strings.Contains(got.body, `"dead"`) })
	see(h.do("GET", oneHook+"/deliveries", admin, "").want(200, ""))
	see(h.do("GET", oneHook+"/deliveries/evt_1", admin, "").want(200, ""))
	see(h.do("POST", oneHook+"/recoveries", admin, `{"states":["delivered"]}`).want(202, ""))
	if err := h.api.Close(); err != nil {
		t.Fatal(err)
	}
	listed, err := h.api.Webhooks.ListDeliveries(t.Context(), alice, hook.text("id"), webhooks.DeliveryQuery{Limit: 10})
	if err != nil || len(listed.Deliveries) != 1 {
		t.Errorf("listed %+v, %v", listed, err)
	}
	for _, want := range []string{"Result:dead", "Outcome:ok", "Type:balance.low", "Action:webhook.rotated", "Action:key.rotated", "Claimed:1", "Stale:0"} {
		if !slices.ContainsFunc(observed, func(event string) bool { return strings.Contains(event, want) }) {
			t.Errorf("nothing observed has %s", want)
		}
	}
	shown = append(append(shown, fmt.Sprintf("%+v", listed)), observed...)
	if !strings.Contains(log.String(), "given up") {
		t.Errorf("no failed delivery in log: %s", log)
	}

	all := log.String() + strings.Join(shown, "\n")
	for name, sentinel := range map[string]string{
		"token":           token,
		"rotated token":   rotated.text("key"),
		"caller's token":  admin,
		"signing secret":  secret,
		"new secret":      newSecret,
		"base64 of new":   strings.TrimPrefix(newSecret, "whsec_"),
		"its base64":      strings.TrimPrefix(secret, "whsec_"),
		"hash of token":   sum(token),
		"hash of rotated": sum(rotated.text("key")),
		"hash of admin's": sum(admin),
		"URL's secret":    urlSecret,
		"header":          headerSecret,
		"new header":      newHeaderSecret,
	} {
		if i := strings.Index(all, sentinel); i >= 0 {
			t.Errorf("%s in: …%.200s", name, all[max(0, i-100):])
		}
	}
}

func sum(token string) string {
	digest := sha256.Sum256([]byte(token))
	return hex.EncodeToString(digest[:])
}
