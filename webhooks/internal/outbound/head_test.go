package outbound

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

var plainHeads = []string{
	"HTTP/1.1 204 No Content\r\nDate: Sat, 21 Nov 2026 18:00:00 GMT\r\n\r\n",
	"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 18:00:00 GMT\r\nContent-Length: 17\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{\"received\":true}",
	"HTTP/1.1 202 Accepted\r\nserver: nginx\r\ncontent-length: 0\r\n\r\n",
	"HTTP/1.1 200\r\nContent-Length:2 \r\n\r\nok",
}

func TestPlain(t *testing.T) {
	for _, head := range plainHeads {
		if _, size := plain([]byte(head), nil); size == 0 {
			t.Errorf("plain(%q) = 0, want its size", head)
		}
	}
	for _, head := range []string{
		"", "HTTP/1.1 204 No Content\r\n", "HTTP/1.1 204 No Content\n\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 204 No Content\r\n\r\n",
		"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: \r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 204 No Content\r\nA : b\r\n\r\n", "HTTP/1.1 204 No Content\r\nA: b\r\n c\r\n\r\n", "HTTP/1.1 204 No Content\r\nA\r\n\r\n", "HTTP/1.1 204 No\x00Content\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nA: \x01\r\n\r\n", "HTTP/1.1 2004 No\r\n\r\n", "HTTP/1.1 2x4 No\r\n\r\n", "HTTP/1.1204 No Content\r\n\r\n",
	} {
		if _, size := plain([]byte(head), nil); size != 0 {
			t.Errorf("plain(%q) = %d, want 0", head, size)
		}
	}
}

// oddHeads have combinations of fields that must be interpreted together.
var oddHeads = []string{
	"HTTP/1.1 299 \r\nContent-Length: 007\r\nTrailer: x\r\nKeep-Alive: timeout=5\r\n\r\nabcdefgh",
	"HTTP/1.1 206  \r\nUpgrade: h2\r\nRetry-After: 1\r\nContent-Length:  3\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nContent-Length: x\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: x\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 204 No Content\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nabcde",
	"HTTP/1.1 099 ?\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 000 ?\r\n\r\n", "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 101 Switching\r\n\r\nx", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 042 ?\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 999 ?\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 -01 ?\r\n\r\n",
}

// FuzzPlain checks that readHead and net/http agree on the final response, its length, and
// whether the connection can be reused. An [http.Transport] reuses no connection after a final
// status below 200.
func FuzzPlain(f *testing.F) {
	for _, head := range append(plainHeads, oddHeads...) {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, came string) {
		received := bufio.NewReader(strings.NewReader(came))
		r, err := readHead(received)
		reference := bufio.NewReader(strings.NewReader(came))
		full, wantErr := http.ReadResponse(reference, postRequest)
		for wantErr == nil && full.StatusCode >= 100 && full.StatusCode <= 199 && full.StatusCode != http.StatusSwitchingProtocols {
			full, wantErr = http.ReadResponse(reference, postRequest)
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, net/http says %v", came, err, wantErr)
		}
		if err != nil {
			return
		}
		if last := full.Close || full.StatusCode <= 199; full.StatusCode != r.status || last != r.last ||
			r.header.Get("Content-Encoding") != full.Header.Get("Content-Encoding") || (full.Body == http.NoBody) != (r.body == nil) {
			t.Fatalf("%q: got %+v, net/http says %+v", came, r, full)
		}
		if r.body == nil {
			r.body = http.NoBody
		}
		got, gotErr := io.ReadAll(r.body)
		want, wantErr := io.ReadAll(full.Body)
		if string(got) != string(want) || (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%q: body %q, %v, net/http says %q, %v", came, got, gotErr, want, wantErr)
		}
		left, _ := io.ReadAll(received)
		if next, _ := io.ReadAll(reference); string(left) != string(next) {
			t.Fatalf("%q: left %q, net/http leaves %q", came, left, next)
		}
	})
}
