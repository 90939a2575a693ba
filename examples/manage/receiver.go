package main

import (
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/storageapi/storageapi/signing"
)

// A receiver receives events over TLS. At /hooks it accepts only events signed with its
// secret. At /open it accepts all events, for readers of docs/http.md, who cannot set its
// secret. See examples/receiver for a receiver to copy.
type receiver struct {
	url    string         // URL of /hooks
	open   string         // URL of /open
	roots  *x509.CertPool // roots of its certificate
	secret atomic.Pointer[signing.Secret]
	server *httptest.Server
}

func newReceiver() *receiver {
	r := &receiver{roots: x509.NewCertPool()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hooks", r.verify)
	mux.HandleFunc("POST /open", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.server = httptest.NewUnstartedServer(mux)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.StartTLS()
	r.roots.AddCert(r.server.Certificate())
	r.url, r.open = r.server.URL+"/hooks", r.server.URL+"/open"
	return r
}

// trust sets the secret that the receiver verifies with.
func (r *receiver) trust(text string) error {
	secret, err := signing.ParseSecret(text)
	if err == nil {
		r.secret.Store(&secret)
	}
	return err
}

func (r *receiver) verify(w http.ResponseWriter, req *http.Request) {
	secret := r.secret.Load()
	if secret == nil {
		http.Error(w, "not set up yet", http.StatusServiceUnavailable)
		return
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{*secret}})
	if err != nil {
		http.Error(w, "not set up", http.StatusInternalServerError)
		return
	}
	verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})).ServeHTTP(w, req)
}
