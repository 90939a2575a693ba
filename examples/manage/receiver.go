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

// A receiver takes events behind TLS: at /hooks those that are signed with the secret
// that it was told, at /open all, for docs/http.md, whose reader tells it none. See
// examples/receiver for one to copy.
type receiver struct {
	url    string         // of /hooks
	open   string         // of /open
	roots  *x509.CertPool // who vouches for its certificate
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
