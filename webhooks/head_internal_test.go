package webhooks

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
			t.Errorf("not plain: %q", head)
		}
	}
	for _, head := range []string{
		"", "HTTP/1.1 204 No Content\r\n", "HTTP/1.1 204 No Content\n\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 204 No Content\r\n\r\n",
		"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nA : b\r\n\r\n", "HTTP/1.1 204 No Content\r\nA: b\r\n c\r\n\r\n", "HTTP/1.1 204 No Content\r\nA\r\n\r\n", "HTTP/1.1 204 No\x00Content\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nA: \x01\r\n\r\n", "HTTP/1.1 2004 No\r\n\r\n", "HTTP/1.1 2x4 No\r\n\r\n", "HTTP/1.1204 No Content\r\n\r\n",
	} {
		if _, size := plain([]byte(head), nil); size != 0 {
			t.Errorf("plain: %q", head)
		}
	}
}

// What is plain means to net/http what it means to us.
func FuzzPlain(f *testing.F) {
	for _, head := range plainHeads {
		f.Add(head)
	}
	f.Add("HTTP/1.1 299 \r\nContent-Length: 007\r\nTrailer: x\r\nKeep-Alive: timeout=5\r\n\r\nabcdefgh")
	f.Add("HTTP/1.1 206  \r\nUpgrade: h2\r\nRetry-After: 1\r\nContent-Length:  3\r\n\r\nabc")
	f.Fuzz(func(t *testing.T, came string) {
		ours := bufio.NewReader(strings.NewReader(came))
		r, size := plain([]byte(came), ours)
		if size == 0 {
			return
		}
		_, _ = io.CopyN(io.Discard, ours, int64(size))
		theirs := bufio.NewReader(strings.NewReader(came))
		full, err := http.ReadResponse(theirs, posted)
		if err != nil {
			t.Fatalf("%q: net/http says %v", came, err)
		}
		if full.StatusCode != r.status || full.Close != r.last || full.Header.Get("Content-Encoding") != "" || (full.Body == http.NoBody) != (r.body == nil) {
			t.Fatalf("%q: got %+v, net/http says %+v", came, r, full)
		}
		if r.body == nil {
			r.body = http.NoBody
		}
		got, gotErr := io.ReadAll(r.body)
		want, wantErr := io.ReadAll(full.Body)
		if string(got) != string(want) || gotErr != wantErr {
			t.Fatalf("%q: body %q, %v, net/http says %q, %v", came, got, gotErr, want, wantErr)
		}
		left, _ := io.ReadAll(ours)
		if next, _ := io.ReadAll(theirs); string(left) != string(next) {
			t.Fatalf("%q: left %q, net/http leaves %q", came, left, next)
		}
	})
}
