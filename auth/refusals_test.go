package auth_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
)

// refusalsLogged runs test with a guard that logs refusals, in a testing/synctest bubble. It
// returns the logged lines without their times. send sends a request from the given source address.
func refusalsLogged(t *testing.T, test func(a *auth.Authenticator, send func(source string, values ...string))) (lines []string) {
	t.Helper()
	testbubble.Run(t, func(t *testing.T) {
		var log strings.Builder
		a, err := auth.New(refusing{allKeys}, auth.Config{
			LogRefusals: true, ClientAddress: func(r *http.Request) string { return r.Header.Get("X-Real-Ip") },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		guarded := a.Require(scopes.FilesRead, http.NotFoundHandler())
		test(a, func(source string, values ...string) {
			r := request(values...)
			r.Header.Set("X-Real-Ip", source)
			serve(t, guarded, r)
		})
		synctest.Wait()
		for line := range strings.Lines(log.String()) {
			if _, line, ok := strings.Cut(strings.TrimSpace(line), `msg="storageapi: requests without a valid API key" `); ok {
				lines = append(lines, line)
			}
		}
	})
	return lines
}

// Each source with refused requests has one line per minute. Requests with a valid key do not
// count.
func TestLogRefusals_LogsOneLinePerSourceAndMinute(t *testing.T) {
	lines := refusalsLogged(t, func(a *auth.Authenticator, send func(string, ...string)) {
		for range 100 {
			send("192.0.2.1", "guess")
			send("192.0.2.1")
		}
		send("192.0.2.2", "expired")
		for _, other := range []string{"reader", "writer", "broken"} {
			send("192.0.2.3", other)
		}
		send("spoofed\nlevel=ERROR", "guess")
		send(strings.Repeat("9", 65), "guess")
		time.Sleep(time.Minute + time.Second)
		send("192.0.2.1", "guess")
		time.Sleep(time.Hour)
		send("192.0.2.1", "guess")
		a.Close()
		a.Close()
	})
	want := []string{
		"source=192.0.2.1 requests=200 missing=100 unknown=100",
		"source=192.0.2.2 requests=1 expired=1 key=key_old",
		`source=unknown requests=2 unknown=2`,
		"source=192.0.2.1 requests=1 unknown=1",
		"source=192.0.2.1 requests=1 unknown=1",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

// 256 sources have their own lines; all others share one.
func TestLogRefusals_ManySources_BoundsLines(t *testing.T) {
	const sources, most = 10_000, 256
	lines := refusalsLogged(t, func(_ *auth.Authenticator, send func(string, ...string)) {
		for i := range sources {
			send(fmt.Sprintf("2001:db8::%x", i), "guess")
		}
		send("2001:db8::0", "guess") // already has a line
		time.Sleep(time.Minute)
	})
	others := fmt.Sprintf("source=others requests=%d unknown=%[1]d", sources-most)
	if len(lines) != most+1 || lines[most] != others || lines[0] != "source=2001:db8::0 requests=2 unknown=2" {
		t.Errorf("%d lines from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
}
