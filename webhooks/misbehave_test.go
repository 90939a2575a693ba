package webhooks_test

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// pour writes text until the other side closes the connection.
func pour(w io.Writer, text string) {
	bytes := []byte(text)
	for {
		if _, err := w.Write(bytes); err != nil {
			return
		}
	}
}

// drip writes text every 50 ms until the other side closes the connection.
func drip(w io.Writer, text string) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// hang waits until the other side closes the connection.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// say returns a function that sends a raw response.
func say(text string) func(net.Conn) {
	return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
}

// A 2xx in the status line is reported as success within about a second, even if the receiver
// misbehaves afterwards.
func TestStatus2xx_AnyBody_IsSuccess(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	bodies := map[string]func(net.Conn){
		"none":                say(ok + "Content-Length: 0\r\n\r\n"),
		"small":               say(ok + "Content-Length: 2\r\n\r\nok"),
		"until the end":       say(ok + "\r\nok"),
		"truncated":           say(ok + "Content-Length: 1000\r\n\r\nok"),
		"a bad chunk":         say(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
		"a truncated chunk":   say(ok + "Transfer-Encoding: chunked\r\n\r\nff\r\nok"),
		"longer than it says": say(ok + "Content-Length: 2\r\n\r\nok, and more"),
		"a second response":   say(ok + "Content-Length: 0\r\n\r\n" + "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
		"204 with a body":     say("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok"),
		"HTTP/1.0":            say("HTTP/1.0 200 OK\r\n\r\nok"),
		"no reason phrase":    say("HTTP/1.1 200\r\n\r\n"),
		"huge":                say(ok + "Content-Length: 100000000\r\n\r\n" + strings.Repeat("x", 1<<20)),
		"never-ending": func(conn net.Conn) {
			say(ok + "\r\n")(conn)
			pour(conn, strings.Repeat("x", 1<<16))
		},
		"never-ending chunks": func(conn net.Conn) {
			say(ok + "Transfer-Encoding: chunked\r\n\r\n")(conn)
			pour(conn, "1\r\nx\r\n")
		},
		"never-ending trailers": func(conn net.Conn) {
			say(ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n")(conn)
			pour(conn, "X-Trailer: x\r\n")
		},
		"reset": func(conn net.Conn) {
			say(ok + "Content-Length: 10\r\n\r\nok")(conn)
			reset(conn)
		},
		"promised and not sent": func(conn net.Conn) {
			say(ok + "Content-Length: 10\r\n\r\n")(conn)
			hang(conn)
		},
		"a slow drip": func(conn net.Conn) {
			say(ok + "Content-Length: 100000\r\n\r\n")(conn)
			drip(conn, "x")
		},
		"a gzip bomb": func(conn net.Conn) {
			say(ok + "Content-Encoding: gzip\r\n\r\n")(conn)
			pour(gzip.NewWriter(conn), strings.Repeat("\x00", 1<<16))
		},
	}
	for name, respond := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attempt(t, newRawReceiver(t, respond).url("hooks.example.com"), nil)
			if got.Effect != driver.Deliver || got.Attempt.Status/100 != 2 {
				t.Errorf("%+v", got.Attempt)
			}
			if got.Attempt.Duration > 8*time.Second {
				t.Errorf("it took %v", got.Attempt.Duration)
			}
		})
	}
}

// Without a final HTTP response within the timeout, the attempt fails. The reason contains
// nothing that the receiver sent.
func TestReceiver_NoFinalResponse_AttemptFails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		respond func(net.Conn)
		reasons []string
	}{
		"closes at once":             {say(""), []string{broke}},
		"resets":                     {reset, []string{broke}},
		"resets after half a header": {func(c net.Conn) { say("HTTP/1.1 200 OK\r\nX-A: b\r\n")(c); reset(c) }, []string{broke}},
		"resets after 100 Continue":  {func(c net.Conn) { say("HTTP/1.1 100 Continue\r\n\r\n")(c); reset(c) }, []string{broke}},
		"says half a status line":    {say("HTTP/1.1 2"), []string{broke, noHTTP}},
		"says half a header":         {say("HTTP/1.1 200 OK\r\nX-SENTINEL: "), []string{broke}},
		"says nothing":               {hang, []string{slow}},
		"says half, and hangs":       {func(c net.Conn) { say("HTTP/1.1 200 OK\r\nX-A: b\r\n")(c); hang(c) }, []string{slow}},
		"speaks no HTTP":             {say("SENTINEL\r\n\r\n"), []string{noHTTP}},
		"speaks HTTP/0.9":            {say("<html>SENTINEL</html>\r\n"), []string{noHTTP}},
		"speaks HTTP/2":              {say("HTTP/2.0 200 OK\r\n\r\n"), []string{"", noHTTP}},
		"speaks HTTP/3000":           {say("HTTP/3000.1 200 OK\r\n\r\n"), []string{noHTTP}},
		"speaks SMTP":                {say("220 SENTINEL ESMTP\r\n"), []string{noHTTP}},
		"has no status":              {say("HTTP/1.1  OK\r\n\r\n"), []string{noHTTP}},
		"has the status 20":          {say("HTTP/1.1 20 OK\r\n\r\n"), []string{noHTTP}},
		"has the status 2000":        {say("HTTP/1.1 2000 OK\r\n\r\n"), []string{noHTTP}},
		"has the status -20":         {say("HTTP/1.1 -20 OK\r\n\r\n"), []string{noHTTP}},
		"has the status 999":         {say("HTTP/1.1 999 SENTINEL\r\nContent-Length: 0\r\n\r\n"), []string{"status 999"}},
		"has the status 099":         {say("HTTP/1.1 099 SENTINEL\r\nContent-Length: 0\r\n\r\n"), []string{"status 99", noHTTP, slow, broke}},
		"has a bad header":           {say("HTTP/1.1 200 OK\r\nSENTINEL\r\n\r\n"), []string{noHTTP}},
		"has a bad length":           {say("HTTP/1.1 200 OK\r\nContent-Length: SENTINEL\r\n\r\n"), []string{noHTTP}},
		"has two lengths":            {say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), []string{noHTTP}},
		"has an unknown coding":      {say("HTTP/1.1 200 OK\r\nTransfer-Encoding: SENTINEL\r\n\r\n"), []string{noHTTP}},
		"switches protocols":         {say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: SENTINEL\r\nConnection: Upgrade\r\n\r\n"), []string{"status 101"}},
		"continues, then fails":      {say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), []string{"status 500"}},
		"floods with a long line":    {func(c net.Conn) { say("HTTP/1.1 200 OK\r\nX-A: ")(c); pour(c, strings.Repeat("x", 4096)) }, []string{noHTTP}},
		"floods with headers":        {func(c net.Conn) { say("HTTP/1.1 200 OK\r\n")(c); pour(c, "X-SENTINEL: x\r\n") }, []string{noHTTP}},
		"floods with a status line":  {func(c net.Conn) { say("HTTP/1.1 200 ")(c); pour(c, strings.Repeat("x", 4096)) }, []string{noHTTP}},
		"floods with 100 Continue":   {func(c net.Conn) { pour(c, "HTTP/1.1 100 Continue\r\n\r\n") }, []string{noHTTP}},
		"floods with 102 Processing": {func(c net.Conn) { pour(c, "HTTP/1.1 102 Processing\r\n\r\n") }, []string{noHTTP}},
		"floods with 103 hints":      {func(c net.Conn) { pour(c, "HTTP/1.1 103 Early Hints\r\nLink: </SENTINEL>\r\n\r\n") }, []string{noHTTP}},
		"floods with line ends":      {func(c net.Conn) { pour(c, "\r\n\r\n\r\n\r\n") }, []string{noHTTP}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attempt(t, newRawReceiver(t, test.respond).url("hooks.example.com"), func(config *webhooks.Config) {
				if test.reasons[0] == slow {
					config.Outbound.Timeout = 300 * time.Millisecond
				}
			})
			for _, reason := range test.reasons {
				class, known := classes[reason]
				if !known {
					class = webhooks.ClassStatus
				}
				if got.Attempt.Error == reason && got.Attempt.Class == class && (got.Effect == driver.Retry) == (reason != "") {
					return
				}
			}
			t.Errorf("outcome %d, %+v, want %q", got.Effect, got.Attempt, test.reasons)
		})
	}
}

// A response header may have up to 16 KiB, which is more than real receivers send.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]driver.Effect{12 << 10: driver.Deliver, 20 << 10: driver.Retry} {
		header := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Long: " + strings.Repeat("x", size) + "\r\n\r\n"
		if got := attempt(t, newRawReceiver(t, say(header)).url("hooks.example.com"), nil); got.Effect != want {
			t.Errorf("with %d bytes: %+v", size, got.Attempt)
		}
	}
}

// reset closes a connection so that the other side gets an error.
func reset(conn net.Conn) {
	raw := conn.(interface{ NetConn() net.Conn }).NetConn()
	_ = raw.(*net.TCPConn).SetLinger(0)
	raw.Close()
}

// A receiver that switches protocols and keeps the connection open must not block the attempt.
func TestSwitchingProtocols_DoesNotBlockAttempt(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(net.Conn){
		"hangs":  hang,
		"drips":  func(conn net.Conn) { drip(conn, "x") },
		"floods": func(conn net.Conn) { pour(conn, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := newRawReceiver(t, func(conn net.Conn) {
				say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")(conn)
				then(conn)
			})
			got := attempt(t, receiver.url("hooks.example.com"), nil)
			if got.Attempt.Error != "status 101" || got.Attempt.Duration > 8*time.Second {
				t.Errorf("%+v", got.Attempt)
			}
		})
	}
}

// An attempt takes no longer than the timeout, regardless of which part is slow.
func TestTimeout_BoundsWholeAttempt(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	receivers := map[string]*receiver{
		"the handshake":                 newTCPReceiver(t, hang),
		"a dripping handshake":          newTCPReceiver(t, func(conn net.Conn) { say("\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")(conn); drip(conn, "\x00") }),
		"the header":                    newRawReceiver(t, hang),
		"a header in drips":             newRawReceiver(t, func(conn net.Conn) { say("HTTP/1.1 200 OK\r\nX-A: ")(conn); drip(conn, "x") }),
		"100 Continue, again and again": newRawReceiver(t, func(conn net.Conn) { drip(conn, "HTTP/1.1 100 Continue\r\n\r\n") }),
		"the body, after a failure": newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}),
	}
	t.Run("the name server", func(t *testing.T) {
		t.Parallel()
		service := newService(t, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{Timeout: timeout}})
		webhook := webhooks.Webhook{ID: "wh_1", URL: "https://silent.example.com/", Secret: signing.NewSecret()}
		event := mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance})
		got := service.Attempt(t.Context(), &webhooks.Task{Event: event, Webhook: &webhook, Attempt: 1})
		// No other receiver was ever reached, so this host is to blame.
		if got.Class != webhooks.ClassInternal || got.Error != offline || got.Duration > timeout+5*time.Second {
			t.Errorf("%+v", got)
		}
	})
	for name, receiver := range receivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attempt(t, receiver.url("hooks.example.com"), func(c *webhooks.Config) { c.Outbound.Timeout = timeout })
			if got.Attempt.Duration > timeout+5*time.Second {
				t.Errorf("it took %v", got.Attempt.Duration)
			}
			if got.Attempt.Error != "status 500" {
				fails(t, got, slow)
			}
		})
	}
}
