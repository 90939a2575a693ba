package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testbubble"
)

// A pipeListener accepts connections in memory, so that its server can run in a testing/synctest
// bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipeListener() *pipeListener {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipeListener{make(chan net.Conn), ctx, cancel}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.close(); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	l.conns <- server
	return client, nil
}

// inBubble serves the API over connections in memory, once with HTTP/1.1 and once with HTTP/2.
func inBubble(t *testing.T, readTimeout time.Duration, test func(t *testing.T, h *host, l *pipeListener, client *http.Client, faults *faulty)) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				faults := newFaulty()
				api, err := storageapi.NewHandler(storageapi.Config{Store: faults, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer api.Close()
				protocols := new(http.Protocols)
				protocols.SetHTTP1(version == "HTTP/1.1")
				protocols.SetUnencryptedHTTP2(version != "HTTP/1.1")
				l := newPipeListener()
				server := &http.Server{Handler: api, Protocols: protocols, ReadTimeout: readTimeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
				go func() { _ = server.Serve(l) }()
				defer server.Close()
				transport := &http.Transport{DialContext: l.dial, Protocols: protocols}
				defer transport.CloseIdleConnections()
				test(t, &host{t, api, "http://pipe"}, l, &http.Client{Transport: transport}, faults)
			})
		})
	}
}

// The test sends bodies that end too late or never, and a slow body that arrives in time.
func TestBodyDeadline_SlowBody_IsRefused(t *testing.T) {
	for _, readTimeout := range []time.Duration{0, time.Hour, 10 * time.Second} {
		inBubble(t, readTimeout, func(t *testing.T, h *host, _ *pipeListener, client *http.Client, faults *faulty) {
			token := h.admin(alice)
			limit := 30 * time.Second
			if readTimeout == 10*time.Second {
				limit = readTimeout
			}
			began := time.Now()
			r := h.hold(client, faults, "POST", keysPath, token, newKey)
			answered := <-r.answer
			if took := time.Since(began); took < limit || took > limit+time.Second {
				t.Errorf("answered after %v, want %v", took, limit)
			}
			got := read(t, "POST", answered).want(400, "VALIDATION_ERROR")
			if !strings.Contains(got.message(), "body must arrive in full within 30 seconds") {
				t.Errorf("got %s", got.message())
			}
			_ = r.rest.Close()

			r = h.hold(client, faults, "POST", keysPath, token, newKey)
			time.Sleep(limit - time.Second)
			r.finish().want(201, "")
		})
	}
}

// Processing the request takes longer than a body may take to arrive. The deadline for the body
// must end neither the request's context nor the next request on the connection.
func TestBodyDeadline_BodyArrived_IsLifted(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, h *host, _ *pipeListener, client *http.Client, faults *faulty) {
		token := h.admin(alice)
		faults.before = func(method string) error {
			if method == "CreateKey" {
				time.Sleep(2 * time.Minute)
			}
			return nil
		}
		for _, body := range []io.Reader{strings.NewReader(newKey), struct{ io.Reader }{strings.NewReader(newKey)}} { // the second has an unknown length
			r, err := http.NewRequestWithContext(t.Context(), "POST", h.url+keysPath, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Api-Key", token)
			r.Header.Set("Content-Type", "application/json")
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			read(t, "POST", response).want(201, "")
		}
	})
}

// To keep the connection, the server may read the rest of the body, but only until the deadline.
func TestBodyDeadline_RequestRefusedBeforeItsBody_StillApplies(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		api, err := storageapi.NewHandler(storageapi.Config{Store: newFaulty(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		h := &host{t, api, ""}
		l := newPipeListener()
		server := &http.Server{Handler: api}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		conn, err := l.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		fmt.Fprintf(conn, "POST /v2/nothing HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: 10\r\n\r\n{", auth.HeaderName, h.admin(alice))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		read(t, "POST", response).want(404, "NOT_FOUND")
		if took := time.Since(began); took > 31*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}
