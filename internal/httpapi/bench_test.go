package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
)

// BenchmarkGuarded measures the extra time that the guard adds to a request whose handler does
// nothing. It compares each guarded request with the unguarded requests before and after it, on the
// same kept-alive connection and with a file as the store, and reports the median. With Go's client
// the ratio must not exceed 1.10. The bare client only writes the bytes and finds the end of the
// response, so it shows the cost in the server.
func BenchmarkGuarded(b *testing.B) {
	api := newAPI(b, storageapi.Config{})
	nothing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux := http.NewServeMux()
	mux.Handle("GET /v2/open", nothing)
	mux.Handle("GET /v2/guarded", api.Auth.Require(scopes.EnvironmentsRead, nothing))
	h := mount(b, api, mux)
	_, token := h.key(alice, scopes.EnvironmentsRead)

	for _, client := range []struct {
		name   string
		client func(*host, string) func(path string)
	}{{"client=nethttp", goClient}, {"client=bare", bareClient}} {
		b.Run(client.name, func(b *testing.B) {
			get := client.client(&host{b, api, h.url}, token)
			timed := func(path string) time.Duration {
				start := time.Now()
				get(path)
				return time.Since(start)
			}
			var open, guarded, added []time.Duration
			for b.Loop() {
				before, with, after := timed("/v2/open"), timed("/v2/guarded"), timed("/v2/open")
				open, guarded = append(open, before, after), append(guarded, with)
				added = append(added, with-(before+after)/2)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(1+float64(median(added))/float64(median(open)), "guarded/unguarded")
			b.ReportMetric(float64(median(open)), "ns/unguarded")
			b.ReportMetric(float64(median(guarded)), "ns/guarded")
		})
	}
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// goClient returns a function that sends a GET request for a path with net/http.
func goClient(h *host, token string) func(path string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	h.Cleanup(client.CloseIdleConnections)
	return func(path string) {
		request, err := http.NewRequest("GET", h.url+path, nil)
		if err != nil {
			h.Fatal(err)
		}
		request.Header.Set("Api-Key", token)
		response, err := client.Do(request)
		if err != nil {
			h.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			h.Fatal(response.Status)
		}
	}
}

// bareClient returns a function that sends a GET request for a path with as little work as
// possible.
func bareClient(h *host, token string) func(path string) {
	connection, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { connection.Close() })
	answers := bufio.NewReader(connection)
	return func(path string) {
		if _, err := io.WriteString(connection, "GET "+path+" HTTP/1.1\r\nHost: x\r\nApi-Key: "+token+"\r\n\r\n"); err != nil {
			h.Fatal(err)
		}
		for first := true; ; first = false {
			line, err := answers.ReadSlice('\n')
			if err != nil || first && string(line) != "HTTP/1.1 204 No Content\r\n" {
				h.Fatalf("%v: %s", err, line)
			}
			if len(line) == 2 {
				return
			}
		}
	}
}
