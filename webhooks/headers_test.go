package webhooks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const secretToken = "s3cr3t-t0ken"

func withHeaders(list ...webhooks.Header) webhooks.CreateParams {
	return webhooks.CreateParams{URL: anyURL, Events: onBalance, Headers: list}
}

// Requests carry the webhook's headers and the host's User-Agent. A receiver that echoes a secret
// header does not reveal it.
func TestHeaders_AreSent_AndSecretsRedacted(t *testing.T) {
	receiver := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		dump, _ := httputil.DumpRequest(r, false)
		_, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		_, _ = w.Write(append(dump, value...))
	})
	config := reaching(&testlog.Book{})
	config.Outbound.UserAgent = "Acme-Hooks/2 (+https://acme.example)"
	service := newService(t, memory.New(), config)
	params := withHeaders(webhooks.Header{Name: "x-team", Value: "a  b: c"}, webhooks.Header{Name: "AUTHORIZATION", Value: "Bearer " + secretToken, Secret: true})
	params.URL = receiver.url("hooks.example.com")
	webhook, err := service.Create(t.Context(), account, params)
	if err != nil {
		t.Fatal(err)
	}
	test, err := service.SendTest(t.Context(), account, webhook.ID)
	if err != nil {
		t.Fatal(err)
	}
	got := receiver.requests()[0].Header
	for name, want := range map[string]string{"Authorization": "Bearer " + secretToken, "X-Team": "a  b: c", "User-Agent": config.Outbound.UserAgent} {
		if list := got[name]; len(list) != 1 || list[0] != want {
			t.Errorf("%s is %q, want %q", name, list, want)
		}
	}
	if answer := test.Attempt.Response; strings.Contains(answer, secretToken) || strings.Count(answer, "[redacted]") < 2 || !strings.Contains(answer, "a  b: c") {
		t.Errorf("the response is kept as %q", answer)
	}
	if agent := service.RequestHeader(test.ID, test.Attempt).Get("User-Agent"); agent != config.Outbound.UserAgent {
		t.Errorf("RequestHeader has the User-Agent %q", agent)
	}

	// From the next attempt on, only the new values are sent.
	if _, err := service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Headers: []webhooks.Header{
		{Name: "authorization", Value: "Bearer 2-" + secretToken, Secret: true}, {Name: "X-TEAM"},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.SendTest(t.Context(), account, webhook.ID); err != nil {
		t.Fatal(err)
	}
	got = receiver.requests()[1].Header
	if got.Get("Authorization") != "Bearer 2-"+secretToken || got["X-Team"] != nil {
		t.Errorf("after the change: %v", got)
	}

	// If the host now signs with a header of that name, only the signature is sent.
	config.SignatureHeader = "Authorization"
	service = newService(t, memory.New(), config)
	signed := service.Attempt(t.Context(), &webhooks.Task{
		Event:   mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}),
		Webhook: &webhook, Attempt: 1,
	})
	got = receiver.requests()[2].Header
	if list := got["Authorization"]; signed.Error != "" || len(list) != 1 || strings.Contains(list[0], secretToken) || got.Get("X-Team") == "" {
		t.Errorf("signed with Authorization: %v, %+v", got, signed)
	}
}

func TestHeaders_Invalid_ReturnsErrorWithoutValue(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	var eleven []webhooks.Header
	for i := range 11 {
		eleven = append(eleven, webhooks.Header{Name: fmt.Sprint("X-", i), Value: secretToken})
	}
	one := func(name, value string) []webhooks.Header {
		return []webhooks.Header{{Name: name, Value: value, Secret: true}}
	}
	for name, list := range map[string][]webhooks.Header{
		"eleven":            eleven,
		"too much":          one("X-A", strings.Repeat("a", 4090)),
		"twice":             append(one("X-A", secretToken), one("x-a", secretToken)...),
		"no name":           one("", secretToken),
		"a space":           one("X A", secretToken),
		"a colon":           one("X-A:", secretToken),
		"a line end":        one("X-A\r\nX-B", secretToken),
		"not ASCII":         one("X-Ä", secretToken),
		"line end in value": one("X-A", secretToken+"\r\nX-B: 1"),
		"newline in value":  one("X-A", secretToken+"\nX-B: 1"),
		"return in value":   one("X-A", secretToken+"\rX-B: 1"),
		"tab in value":      one("X-A", secretToken+"\t1"),
		"NUL in value":      one("X-A", secretToken+"\x00"),
		"value not ASCII":   one("X-A", secretToken+"é"),
		"leading space":     one("X-A", " "+secretToken),
		"trailing space":    one("X-A", secretToken+" "),
		"short secret":      one("X-A", "s3cr3t-"),
	} {
		_, err := service.Create(t.Context(), account, withHeaders(list...))
		wantInvalid(t, err, "headers")
		_, changed := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Headers: list})
		wantInvalid(t, changed, "headers")
		if text := err.Error() + changed.Error(); strings.Contains(text, "s3cr3t") {
			t.Errorf("%s: the value is in %s", name, text)
		}
	}
	if _, err := service.Create(t.Context(), account, withHeaders(webhooks.Header{Name: "X-A"})); err == nil {
		t.Error("an empty value was accepted")
	}
	for _, name := range []string{
		"Host", "connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "content-type", "Content-Encoding", "Trailer", "TE", "Upgrade", "Expect",
		"Webhook-Id", "webhook-signature", "WEBHOOK-anything", "User-Agent", "Traceparent", "tracestate", "X-Service-Signature", "x_service_signature",
		"Content_Length", "transfer_encoding", "Proxy-Authorization", "X-Forwarded-For", "Forwarded", "Via", "Accept-Encoding",
	} {
		_, err := service.Create(t.Context(), account, withHeaders(one(name, secretToken)...))
		wantInvalid(t, err, "headers")
		_, err = service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Headers: []webhooks.Header{{Name: name}}})
		wantInvalid(t, err, "headers")
	}
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || !cmp.Equal(made, got) {
		t.Errorf("the webhook changed: %+v, %v", got, err)
	}
}

// Changes merge by name, in any case of the letters. Each change is audited by name, even if only a
// secret value differs.
func TestUpdate_Headers_MergeByName(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	made, err := service.Create(t.Context(), account, withHeaders(webhooks.Header{Name: "X-A", Value: "1"}, webhooks.Header{Name: "X-B", Value: secretToken, Secret: true}))
	if err != nil {
		t.Fatal(err)
	}
	other := "s3cr3t-0ther"
	steps := []struct {
		change, want []webhooks.Header
		audited      bool
	}{
		{nil, []webhooks.Header{{Name: "X-A", Value: "1", Secret: false}, {Name: "X-B", Value: secretToken, Secret: true}}, false},
		{[]webhooks.Header{{Name: "x-b", Value: secretToken, Secret: true}}, []webhooks.Header{{Name: "X-A", Value: "1", Secret: false}, {Name: "X-B", Value: secretToken, Secret: true}}, false},
		{[]webhooks.Header{{Name: "x-b", Value: other, Secret: true}}, []webhooks.Header{{Name: "X-A", Value: "1", Secret: false}, {Name: "X-B", Value: other, Secret: true}}, true},
		{[]webhooks.Header{{Name: "X-0", Value: "0", Secret: false}, {Name: "X-A", Value: secretToken, Secret: true}}, []webhooks.Header{{Name: "X-0", Value: "0", Secret: false}, {Name: "X-A", Value: secretToken, Secret: true}, {Name: "X-B", Value: other, Secret: true}}, true},
		{[]webhooks.Header{{Name: "X-Unknown", Value: "", Secret: false}, {Name: "x-A", Value: "", Secret: true}}, []webhooks.Header{{Name: "X-0", Value: "0", Secret: false}, {Name: "X-B", Value: other, Secret: true}}, true},
		{[]webhooks.Header{{Name: "X-0", Value: "", Secret: false}, {Name: "X-B", Value: "", Secret: false}}, nil, true},
	}
	for i, step := range steps {
		before := len(auditOf(t, store))
		got, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Headers: step.change})
		if diff := cmp.Diff(step.want, got.Headers); err != nil || diff != "" {
			t.Errorf("step %d (-want +got), %v:\n%s", i, err, diff)
		}
		entries := auditOf(t, store)
		if added := len(entries) - before; (added == 1) != step.audited || step.audited && !cmp.Equal(entries[0].Changed, []string{"headers"}) {
			t.Errorf("step %d: %d audit entries, the latest %+v", i, added, entries[0])
		}
		if text := fmt.Sprintf("%+v", entries); strings.Contains(text, "s3cr3t") {
			t.Errorf("step %d: a value is in %s", i, text)
		}
	}
}

// auditOf returns the audit entries of the account, newest first.
func auditOf(t *testing.T, store audit.Store) []audit.Entry {
	t.Helper()
	page, err := store.ListAuditEntries(t.Context(), account, audit.Query{Limit: 99})
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

// A user who may change the URL must not learn a secret header by changing it.
func TestUpdate_OtherHost_RemovesSecretHeaders(t *testing.T) {
	service := newClocked(t)
	made, err := service.Create(t.Context(), account, withHeaders(webhooks.Header{Name: "X-A", Value: "1"}, webhooks.Header{Name: "X-B", Value: secretToken, Secret: true}))
	if err != nil {
		t.Fatal(err)
	}
	plain, both := made.Headers[:1], made.Headers
	for _, step := range []struct {
		url     string
		headers []webhooks.Header
		want    []webhooks.Header
	}{
		{anyURL + "/other?path", nil, both},
		{"https://example.com:8443/hooks", made.Headers[1:], both},
		{"https://example.org/hooks", nil, plain},
	} {
		got, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: &step.url, Headers: step.headers})
		if diff := cmp.Diff(step.want, got.Headers); err != nil || diff != "" {
			t.Errorf("%s (-want +got), %v:\n%s", step.url, err, diff)
		}
	}
}

// Concurrent changes of different headers all take effect, and together keep to the limit.
func TestUpdate_HeadersConcurrently_KeepsAllWithinLimit(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	var wg sync.WaitGroup
	results := make([]error, 20)
	for i := range results {
		wg.Go(func() {
			_, results[i] = service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Headers: []webhooks.Header{{Name: fmt.Sprint("X-", i), Value: "1"}}})
		})
	}
	wg.Wait()
	added := 0
	for _, err := range results {
		if err == nil {
			added++
		} else {
			wantInvalid(t, err, "headers")
		}
	}
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || added != 10 || len(got.Headers) != 10 {
		t.Errorf("%d changes accepted, the headers are %v, %v", added, got.Headers, err)
	}
}

// A repeated creation compares plain headers and the names of secret ones, and returns no secret.
func TestCreate_SameIdempotencyKey_ComparesHeadersWithoutSecrets(t *testing.T) {
	service := newClocked(t)
	create := func(value, secret string) (webhooks.Webhook, error) {
		params := withHeaders(webhooks.Header{Name: "X-A", Value: value}, webhooks.Header{Name: "X-B", Value: secret, Secret: true})
		params.IdempotencyKey = "key"
		return service.Create(t.Context(), account, params)
	}
	made, err := create("1", secretToken)
	if err != nil {
		t.Fatal(err)
	}
	again, err := create("1", "s3cr3t-0ther")
	want := []webhooks.Header{{Name: "X-A", Value: "1"}, {Name: "X-B", Secret: true}}
	if diff := cmp.Diff(want, again.Headers); err != nil || again.ID != made.ID || diff != "" {
		t.Errorf("again: %v (-want +got):\n%s", err, diff)
	}
	if _, err := create("2", secretToken); !errors.Is(err, apierr.ErrIdempotencyMismatch) {
		t.Errorf("with another header: %v", err)
	}
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || !cmp.Equal(got.Headers, made.Headers) {
		t.Errorf("stored %v, %v", got.Headers, err)
	}
}

func TestHeader_PrintedOrMarshaled_HidesSecret(t *testing.T) {
	webhook := webhooks.Webhook{Headers: []webhooks.Header{{Name: "X-A", Value: secretToken, Secret: true}, {Name: "X-B", Value: "plain"}}}
	object, err := json.Marshal(webhook)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(object), fmt.Sprintf("%v %+v %s %q", webhook, webhook, webhook.Headers, webhook.Headers[0])} {
		if strings.Contains(text, secretToken) || !strings.Contains(text, "X-A: [redacted]") || !strings.Contains(text, "X-B: plain") {
			t.Errorf("printed %s", text)
		}
	}
}
