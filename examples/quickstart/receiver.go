package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A receiver is an HTTPS server that a customer runs to receive events. It accepts
// only signed requests. See examples/receiver for a receiver to copy.
type receiver struct {
	url     string
	trusted *x509.CertPool
	events  chan []byte // verified bodies
	secret  atomic.Pointer[signing.Secret]
	server  *http.Server
}

func startReceiver() (*receiver, error) {
	certificate, trusted, err := newCertificate()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{
		url:     "https://" + listener.Addr().String() + "/hooks",
		trusted: trusted,
		events:  make(chan []byte, 64),
	}
	r.server = &http.Server{
		Handler:           http.HandlerFunc(r.receive),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go func() { _ = r.server.ServeTLS(listener, "", "") }()
	return r, nil
}

// receive answers 204 to requests signed with the receiver's secret.
func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
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
	verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, "not read", http.StatusBadRequest)
			return
		}
		r.events <- body
		w.WriteHeader(http.StatusNoContent)
	})).ServeHTTP(w, req)
}
