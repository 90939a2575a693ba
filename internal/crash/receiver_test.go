//go:build unix

package crash_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A stage is the progress of an attempt when its receiver kills the host.
type stage int

const (
	received  stage = iota // before any byte of the response
	answering              // after half of the status line
	answered               // after the whole response, which may have been read
)

func (s stage) String() string {
	return [...]string{"request received", "response begun", "response sent"}[s]
}

// A receiver is the HTTPS server of all webhooks.
type receiver struct {
	ledger    *ledger
	url       string
	authority []byte // DER
	conns     atomic.Int64
	trap      atomic.Pointer[trap]
	deciding  sync.RWMutex // read-locked by checks during which the host must not be killed
}

type wireKey struct{} // key of the *wire in a request's context

// A trap kills the host at its n-th request.
type trap struct {
	stage stage
	left  atomic.Int64
	kill  func()
}

func newReceiver(t testing.TB, l *ledger) *receiver {
	certificate := newCertificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{ledger: l, url: "https://" + listener.Addr().String(), authority: certificate.Certificate[0]}
	server := &http.Server{
		Handler:  r,
		ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, wireKey{}, new(wire))
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				r.conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				r.conns.Add(-1)
			}
		},
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

// newCertificate returns a self-signed certificate for this machine.
func newCertificate(t testing.TB) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "receiver"}, SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	path := request.URL.Path
	gone, before := r.ledger.isGone(path)
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // incomplete: the host was killed, or has abandoned the request
	}
	if gone {
		r.refuse(request, before)
		return
	}
	a := arrival{request.Context().Value(wireKey{}).(*wire), request.Header, body}
	answer := func() { w.WriteHeader(http.StatusInternalServerError) }
	if r.ledger.arrive(path, a) {
		answer = func() {
			r.ledger.accepted(path, a)
			w.WriteHeader(http.StatusNoContent)
		}
	}
	if t := r.trap.Load(); t != nil && t.left.Add(-1) == 0 {
		r.spring(t, w, request, answer)
		return
	}
	answer()
}

// refuse handles a request to a webhook that was deleted before the receiver began to read the
// request. The host may have sent it before the deletion, but then it must have abandoned the
// request and closed the connection instead of waiting for a response.
func (r *receiver) refuse(request *http.Request, before bool) {
	r.deciding.RLock()
	defer r.deciding.RUnlock()
	id := request.Header.Get(signing.HeaderID)
	if before {
		r.ledger.Errorf("%s got %s from a host that began after the webhook was gone", request.URL.Path, id)
		return
	}
	select {
	case <-request.Context().Done():
		r.ledger.count(func(c *counts) { c.cutShort++ })
	case <-time.After(3 * time.Second): // well below the host's timeout
		r.ledger.Errorf("%s got %s, and the host waits for an answer, after the webhook was gone", request.URL.Path, id)
	}
}

// spring kills the host at the stage of the trap.
func (r *receiver) spring(t *trap, w http.ResponseWriter, request *http.Request, answer func()) {
	switch t.stage {
	case received:
		t.kill()
		<-request.Context().Done() // the host is dead
	case answering:
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			r.ledger.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 20")
		t.kill()
		_, _ = io.Copy(io.Discard, conn)
	case answered:
		answer()
		_ = http.NewResponseController(w).Flush()
		t.kill()
	}
}

// settle waits until all requests from a dead host are handled.
func (r *receiver) settle() {
	deadline := time.Now().Add(20 * time.Second)
	for r.conns.Load() > 0 {
		if time.Now().After(deadline) {
			r.ledger.Fatal("connections of a dead host stay open")
		}
		time.Sleep(time.Millisecond)
	}
}
