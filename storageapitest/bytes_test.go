package storageapitest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A receiver of the kit must read exactly the bytes that a server reads from a TLS socket.
func TestSameBytes(t *testing.T) {
	var tap tap
	arrived := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{} }))
	server.StartTLS() // creates the certificate
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secured := &http.Server{Handler: server.Config.Handler}
	defer secured.Close()
	go secured.Serve(tappedListener{tls.NewListener(listener, &tls.Config{Certificates: server.TLS.Certificates}), &tap})
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	noon := time.Now().Truncate(time.Second)
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New(), Webhooks: webhooks.Config{
		Outbound: webhooks.Outbound{RootCAs: roots}, Now: func() time.Time { return noon },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	webhook, err := api.Webhooks.Create(t.Context(), "acct_1", webhooks.CreateParams{URL: "https://hooks.example.com/in?a=b", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	run := func(arrive func()) []byte {
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- api.Run(ctx) }()
		arrive()
		end()
		<-ended
		return tap.take()
	}

	testhook.SetNetwork(api.Webhooks, testhook.Network{TLS: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	}})
	event := webhooks.Event{ID: "evt_1", Account: "acct_1", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := api.Webhooks.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	onSocket := run(func() { <-arrived })

	kit := storageapitest.New(t, storageapitest.Handler(api))
	receiver := kit.Receiver("hooks.example.com")
	receiver.Trust(webhook.Secret)
	testhook.SetNetwork(api.Webhooks, testhook.Network{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := kit.Dial(ctx, network, address)
		return tapped{conn, &tap, true}, err
	}})
	if err := api.Webhooks.Redeliver(t.Context(), "acct_1", webhook.ID, "evt_1"); err != nil {
		t.Fatal(err)
	}
	inKit := run(func() { receiver.Next() })
	if diff := cmp.Diff(string(onSocket), string(inKit)); diff != "" || !bytes.Contains(onSocket, []byte("POST /in?a=b HTTP/1.1\r\n")) {
		t.Errorf("a request (-on a socket +in the kit):\n%s", diff)
	}
}

// A tap records the bytes that pass through it.
type tap struct {
	mu   sync.Mutex
	data []byte
}

func (t *tap) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, b...)
}

func (t *tap) take() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	data := t.data
	t.data = nil
	return data
}

// A tapped connection records the bytes that are written to it or read from it.
type tapped struct {
	net.Conn
	tap    *tap
	writes bool
}

func (c tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.writes {
		c.tap.add(b[:n])
	}
	return n, err
}

func (c tapped) Write(b []byte) (int, error) {
	if c.writes {
		c.tap.add(b)
	}
	return c.Conn.Write(b)
}

type tappedListener struct {
	net.Listener
	tap *tap
}

func (l tappedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return tapped{conn, l.tap, false}, err
}
