package webhooks_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A receiver gets a POST of the stored bytes, signed with the webhook's secret.
func TestRequestIsSigned(t *testing.T) {
	for _, header := range []string{"", "x-hub-signature"} {
		t.Run(header, func(t *testing.T) {
			receiver := newReceiver(t, status(http.StatusNoContent))
			box := &outbox{WebhookStore: newLedger()}
			config := reaching(&testlog.Book{})
			config.SignatureHeader = header
			service := newService(t, box, config)
			webhook := subscribe(t, service, receiver.url("hooks.example.com"))
			start(t, service)
			event := publish(t, service)
			box.WebhookStore.(*ledger).next(t)

			got := receiver.requests()[0]
			verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{webhook.Secret}, Header: header})
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify(got.Header, got.body); err != nil {
				t.Errorf("%v in %v", err, got.Header)
			}
			if diff := cmp.Diff(string(box.events[0].Body), string(got.body)); diff != "" {
				t.Errorf("body (-stored +sent):\n%s", diff)
			}
			if got.Method != http.MethodPost || got.RequestURI != secretPath || got.Host != strings.Split(webhook.URL, "/")[2] {
				t.Errorf("got %s %s at %s", got.Method, got.RequestURI, got.Host)
			}
			if id := got.Header.Get("Webhook-Id"); id != event {
				t.Errorf("Webhook-Id is %s, want %s", id, event)
			}
			if header == "" {
				header = "X-Service-Signature"
			}
			want := map[string]string{
				"Content-Type": "application/json; charset=utf-8", "Content-Length": strconv.Itoa(len(got.body)), "User-Agent": "storageapi-webhooks/1",
			}
			for name, values := range got.Header {
				switch name {
				case "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", http.CanonicalHeaderKey(header):
				default:
					if len(values) != 1 || want[name] != values[0] {
						t.Errorf("unexpected header %s: %q", name, values)
					}
					delete(want, name)
				}
			}
			if len(want) > 0 {
				t.Errorf("missing headers: %v", want)
			}
		})
	}
}

func TestStatusDecidesResult(t *testing.T) {
	t.Parallel()
	for code := 200; code < 600; code++ {
		switch {
		case code > 204 && code < 299, code > 308 && code < 399, code > 411 && code < 428, code > 429 && code < 499, code > 504 && code < 599:
			continue // statuses that are treated like their neighbors
		}
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			got := attempt(t, newReceiver(t, status(code)).url("hooks.example.com"), nil)
			outcome, class, reason := driver.Retry, webhooks.ClassStatus, fmt.Sprintf("status %d", code)
			switch {
			case code < 300:
				outcome, class, reason = driver.Deliver, "", ""
			case code < 400:
				class = webhooks.ClassRedirect
				reason += ": redirects are not followed"
			case code == http.StatusGone:
				outcome = driver.GiveUp
			}
			if got.Effect != outcome || got.Attempt.Class != class || got.Attempt.Error != reason || got.Attempt.Status != code || (got.off != "") != (code == http.StatusGone) {
				t.Errorf("got outcome %d, %+v, turned off: %q", got.Effect, got.Attempt, got.off)
			}
		})
	}
}

// Following a redirect would send the event and the request's headers to an unchecked server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	canary := newReceiver(t, status(http.StatusOK))
	for code := 300; code <= 308; code++ {
		for _, target := range []string{
			canary.url("hooks.example.com"), "http://" + canary.address, "//" + canary.address, "/elsewhere", "", "http://169.254.169.254/latest/meta-data/",
			"http://[::1]/", "file:///etc/passwd", "gopher://" + canary.address + "/_POST", "https://user@" + canary.address,
		} {
			redirecting := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", target)
				w.Header().Set("Refresh", "0; url="+target)
				w.WriteHeader(code)
			})
			got := attempt(t, redirecting.url("hooks.example.com"), nil)
			if got.Effect != driver.Retry || got.Attempt.Status != code || got.Attempt.Class != webhooks.ClassRedirect {
				t.Errorf("%d to %q: %+v", code, target, got.Attempt)
			}
			if n := len(redirecting.requests()); n != 1 {
				t.Errorf("%d to %q: %d requests", code, target, n)
			}
		}
	}
	if canary.conns.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// Retry-After can only lengthen the wait before the next attempt.
func TestRetryAfter_OnlyLengthensWait(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(http.TimeFormat) }
	for _, code := range []int{429, 503} {
		for value, want := range map[string]time.Duration{
			"7200": 2 * time.Hour, "1": 0, "-7200": 0, "soon": 0, "99999999999999999999": 24 * time.Hour,
			in(3 * time.Hour): 3 * time.Hour, in(-time.Hour): 0, in(1000 * time.Hour): 24 * time.Hour,
		} {
			receiver := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(code)
			})
			got := attempt(t, receiver.url("hooks.example.com"), nil)
			least, most := want-10*time.Second, want
			if want == 0 { // the scheduled hour, ±20 %
				least, most = 48*time.Minute, 72*time.Minute
			}
			if got.Effect != driver.Retry || got.RetryAfter < least || got.RetryAfter > most {
				t.Errorf("%d with %q: outcome %d, again in %v", code, value, got.Effect, got.RetryAfter)
			}
		}
	}
}

// 410 Gone means that the receiver wants no more events.
func TestGone_DisablesWebhook(t *testing.T) {
	t.Parallel()
	store, logs := newLedger(), &testlog.Book{}
	service := newService(t, store, reaching(logs))
	webhook := subscribe(t, service, newReceiver(t, status(http.StatusGone)).url("hooks.example.com"))
	stop := start(t, service)
	event := publish(t, service)
	store.next(t)
	stop() // waits until results are logged
	if got, err := service.Get(t.Context(), account, webhook.ID); err != nil || got.Active {
		t.Errorf("it is %+v, %v", got, err)
	}
	if got := delivery(t, service, event); got.State != webhooks.Dead || got.Attempts[0].Status != 410 {
		t.Errorf("the delivery is %+v", got)
	}
	if lines := logs.Lines("level=WARN", "webhook disabled", webhook.ID); len(lines) != 1 {
		t.Errorf("logged:\n%s", logs)
	}
	if got := delivery(t, service, publish(t, service)); got.State != webhooks.Skipped {
		t.Errorf("what comes later is %s", got.State)
	}
}

// Connections are reused, even after a response with a small body.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	needsKeptConnections(t)
	receiver := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "thank you") })
	store := newLedger()
	service := newService(t, store, reaching(&testlog.Book{}))
	subscribe(t, service, receiver.url("hooks.example.com"))
	start(t, service)
	for range 10 {
		publish(t, service)
		if got := store.next(t); got.Effect != driver.Deliver {
			t.Fatalf("%+v", got.Attempt)
		}
	}
	if n := receiver.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A proxy taken from the environment would dial for us and so bypass the guard.
func TestProxiesAreNotUsed(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	target := receiver.url("hooks.example.com")
	request, err := http.NewRequest(http.MethodPost, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if proxy, err := http.ProxyFromEnvironment(request); proxy == nil || err != nil {
		t.Fatalf("the environment names no proxy for %s: %v, %v", target, proxy, err)
	}
	if got := attempt(t, target, nil); got.Effect != driver.Deliver || proxied.Load() != 0 {
		t.Errorf("%+v; %d connections to the proxy", got.Attempt, proxied.Load())
	}
}

// Path and query arrive exactly as they were registered.
func TestURLsArriveUnchanged(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	for _, path := range []string{"/", "/?", "/a//b/../c", "/a%2Fb%00", "/?a=b&a=c;d&%zz", "/a:b@c", "/*", "/SENTINEL?x=%20+"} {
		u, err := url.Parse(receiver.url("hooks.example.com"))
		if err != nil {
			t.Fatal(err)
		}
		before := len(receiver.requests())
		if got := attempt(t, "https://"+u.Host+path, nil); got.Effect != driver.Deliver {
			t.Fatalf("%s: %+v", path, got.Attempt)
		}
		if got := receiver.requests()[before].RequestURI; got != path {
			t.Errorf("%s arrived as %s", path, got)
		}
	}
}

// A failure on this side counts as one failed attempt and does not affect later attempts.
func TestAttempt_LocalFailure_AffectsNoOther(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	config, broken := reaching(&testlog.Book{}), false
	config.Now = func() time.Time {
		if broken {
			panic("SENTINEL")
		}
		return noon
	}
	service := newService(t, memory.New(), config)
	task := func() *webhooks.Task {
		return &webhooks.Task{
			Event:   mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}),
			Webhook: &webhooks.Webhook{ID: "wh_1", URL: receiver.url("hooks.example.com"), Secret: signing.NewSecret()}, Attempt: 7,
		}
	}
	for name, test := range map[string]struct {
		spoil  func(*webhooks.Task)
		reason string
	}{
		"an id that panics":   {func(task *webhooks.Task) { task.Event.ID = "SENTINEL.1" }, "panic"},
		"a clock that panics": {func(*webhooks.Task) { broken = true }, "panic"},
		"no secret":           {func(task *webhooks.Task) { task.Webhook.Secret = signing.Secret{} }, "no usable signing secret"},
		"no URL":              {func(task *webhooks.Task) { task.Webhook.URL = "" }, "no usable URL"},
		"no host":             {func(task *webhooks.Task) { task.Webhook.URL = "https:///SENTINEL" }, "no usable URL"},
		"plain HTTP":          {func(task *webhooks.Task) { task.Webhook.URL = "http://" + receiver.address }, "no usable URL"},
	} {
		spoiled := task()
		test.spoil(spoiled)
		got := service.Attempt(t.Context(), spoiled)
		broken = false
		if got.Class != webhooks.ClassInternal || got.Error != test.reason || got.Number != 7 || got.Status != 0 || got.Duration < 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if got := service.Attempt(t.Context(), task()); got.Error != "" {
			t.Errorf("after %s: %+v", name, got)
		}
	}
}
