package webhooks_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
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

// The attempt records the beginning of the response, for any status.
func TestResponse_AnyStatus_IsRecorded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, want string
	}{
		"nothing":         {"", ""},
		"a word":          {"ok", "ok"},
		"JSON":            {`{"error":"no such tenant"}` + "\n", `{"error":"no such tenant"}` + "\n"},
		"1 KiB":           {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"1 KiB and more":  {strings.Repeat("x", 1025), strings.Repeat("x", 1024)},
		"100 KiB":         {strings.Repeat("x", 100<<10), strings.Repeat("x", 1024)},
		"a character cut": {strings.Repeat("x", 1022) + "€", strings.Repeat("x", 1022)},
		"one not cut":     {strings.Repeat("x", 1021) + "€€", strings.Repeat("x", 1021) + "€"},
		"Latin-1":         {"caf\xe9 ferm\xe9", "caf\uFFFD ferm\uFFFD"},
		"NUL":             {"a\x00b", "a\uFFFDb"},
		"NULs":            {strings.Repeat("\x00", 1024), strings.Repeat("\uFFFD", 341)},
		"invalid, long":   {strings.Repeat("\xff", 5000), "\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, code := range []int{200, 202, 301, 400, 410, 429, 500, 599} {
				got := attempt(t, newReceiver(t, body(code, test.text)).url("hooks.example.com"), nil).Attempt
				if diff := cmp.Diff(test.want, got.Response); diff != "" || got.Status != code {
					t.Errorf("status %d (-want +got):\n%s", got.Status, diff)
				}
			}
		})
	}
}

// Compressed bodies are neither decompressed nor recorded.
func TestResponse_Compressed_IsNotRecorded(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(bytes.Repeat([]byte("bomb"), 1<<20))
	writer.Close()
	for encoding, want := range map[string]string{"gzip": "", "br": "", "zstd, gzip": "", "identity": "plain", "IDENTITY": "plain"} {
		receiver := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "" {
				t.Errorf("it asks for %s", got)
			}
			w.Header().Set("Content-Encoding", encoding)
			if want == "" {
				_, _ = w.Write(packed.Bytes())
			} else {
				_, _ = io.WriteString(w, want)
			}
		})
		if got := attempt(t, receiver.url("hooks.example.com"), nil); got.Attempt.Response != want || got.Effect != driver.Deliver {
			t.Errorf("%s: %+v", encoding, got.Attempt)
		}
	}
}

// The received part of an incomplete body is recorded, and does not change the result.
func TestResponse_Incomplete_IsRecorded(t *testing.T) {
	t.Parallel()
	for name, respond := range map[string]func(net.Conn){
		"truncated":   say("HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nsorry"),
		"a bad chunk": say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsorry\r\nzz\r\n"),
		"hangs":       func(conn net.Conn) { say("HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nsorry")(conn); hang(conn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attempt(t, newRawReceiver(t, respond).url("hooks.example.com"), nil)
			if got.Attempt.Response != "sorry" || got.Attempt.Error != "status 500" || got.Attempt.Duration > 6*time.Second {
				t.Errorf("%+v", got.Attempt)
			}
		})
	}
}

// Many receivers echo the request or the expected signature.
func TestResponse_EchoedSecrets_AreRedacted(t *testing.T) {
	t.Parallel()
	secret := signing.NewSecret()
	text := secret.Reveal()
	key := strings.TrimPrefix(text, "whsec_")
	for name, echo := range map[string]func(*http.Request) string{
		"the request": func(r *http.Request) string {
			dump, _ := httputil.DumpRequest(r, false)
			return string(dump)
		},
		"the secret":           func(*http.Request) string { return "your secret is " + text + "!" },
		"the key":              func(*http.Request) string { return key },
		"half of the key":      func(*http.Request) string { return key[:20] + "…" },
		"the secret, escaped":  func(*http.Request) string { return url.QueryEscape(text) },
		"the secret, for PHP":  func(*http.Request) string { return strings.ReplaceAll(text, "/", `\/`) },
		"the secret, for .NET": func(*http.Request) string { return strings.ReplaceAll(text, "+", `\u002B`) },
		"the secret, cut":      func(*http.Request) string { return strings.Repeat("x", 1000) + text },
		"the secret, often":    func(*http.Request) string { return strings.Repeat(text+" ", 500) },
		"a signature":          func(r *http.Request) string { return "got " + r.Header.Get("X-Service-Signature") },
		"another signature": func(r *http.Request) string {
			return "got " + strings.TrimPrefix(r.Header.Get("Webhook-Signature"), "v1,")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secrets := make(chan []string, 1)
			receiver := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
				secrets <- []string{text, r.Header.Get("X-Service-Signature"), r.Header.Get("Webhook-Signature")}
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, echo(r))
			})
			service := newService(t, memory.New(), reaching(&testlog.Book{}))
			got := service.Attempt(t.Context(), &webhooks.Task{
				Event:   mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}),
				Webhook: &webhooks.Webhook{ID: "wh_1", URL: receiver.url("hooks.example.com"), Secret: secret}, Attempt: 1,
			}).Response
			if !strings.Contains(got, "[redacted]") || len(got) > 1024 {
				t.Errorf("the response is kept as %q", got)
			}
			for _, secret := range <-secrets {
				for i := range len(secret) - 15 {
					if strings.Contains(got, secret[i:i+15]) {
						t.Fatalf("a part of what is secret is kept, from character %d", i)
					}
				}
			}
		})
	}
}

// Text that is not secret is recorded unchanged.
func TestResponse_EchoedText_IsUnchanged(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s: whsec_, v1, [redacted]", r.Header.Get("Webhook-Id"), r.Header.Get("Content-Type"))
	})
	service := newService(t, memory.New(), reaching(&testlog.Book{}))
	want := "evt_1 at application/json; charset=utf-8: whsec_, v1, [redacted]"
	if got := try(t, service, receiver.url("hooks.example.com")).Response; got != want {
		t.Errorf("got %q", got)
	}
}
