package webhooks_test

import (
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// For any response, the attempt ends, and its record is consistent.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 503 No\r\nRetry-After: 99999999999\r\n\r\n",
		"HTTP/1.1 307 To\r\nLocation: https://127.0.0.1/\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
		"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nxxx", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\na\x00b\xff\xe2\x82", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b", "HTTP/1.0 400 No\r\n\r\n" + strings.Repeat("€", 600),
		"HTTP/1.0 200\r\n\r\nbody", "\x00", "HTTP/1.1 99999999999 X\r\n\r\n",
	} {
		f.Add(seed)
	}
	var answer atomic.Value
	receiver := newRawReceiver(f, func(conn net.Conn) { say(answer.Load().(string))(conn) })
	store, logs := newLedger(), &testlog.Book{}
	config := reaching(logs)
	config.Outbound.Timeout, config.Logger = time.Second, nil
	service := newService(f, store, config)
	subscribe(f, service, receiver.url("127.0.0.1"))
	start(f, service)
	f.Fuzz(func(t *testing.T, text string) {
		answer.Store(text)
		event := publish(t, service)
		got := store.next(t)
		attempt := got.Attempt
		success := attempt.Status >= 200 && attempt.Status <= 299
		switch {
		case success != (attempt.Error == ""), success != (got.Effect == driver.Deliver), (attempt.Status == 410) != (got.off != ""):
			t.Errorf("%q: outcome %d, %+v", text, got.Effect, attempt)
		case got.RetryAfter < 0 || got.RetryAfter > 24*time.Hour:
			t.Errorf("%q: again in %v", text, got.RetryAfter)
		case (attempt.Class == "") != success, (attempt.Class == webhooks.ClassRedirect) != (attempt.Status/100 == 3):
			t.Errorf("%q: class %q of %+v", text, attempt.Class, attempt)
		case len(attempt.Response) > 1024 || !utf8.ValidString(attempt.Response) || strings.Contains(attempt.Response, "\x00"):
			t.Errorf("%q: the response is kept as %q", text, attempt.Response)
		case len(attempt.Error) > 100:
			t.Errorf("%q: the reason is %q", text, attempt.Error)
		case attempt.Status != 0 && !strings.Contains(text, strconv.Itoa(attempt.Status)):
			t.Errorf("%q: status %d", text, attempt.Status)
		}
		if got.off != "" {
			if _, err := service.Update(t.Context(), account, got.WebhookID, webhooks.UpdateParams{Active: new(true)}); err != nil {
				t.Error(err)
			}
		}
		if list := deliveries(t, service, event); len(list) != 1 || len(list[0].Attempts) != 1 {
			t.Errorf("%q: recorded %+v", text, list)
		}
	})
}
