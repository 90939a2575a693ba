// Receiver is a receiver of webhooks to copy: it verifies each request's
// signature and prints the event.
//
//	WEBHOOK_SECRET=whsec_… go run ./examples/receiver -addr :8443 -cert cert.pem -key key.pem
//
// The certificate is one that senders trust; for a try on one machine,
//
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
//		-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem
//
// makes one that only those trust who are told to. During a rotation
// WEBHOOK_SECRET holds both secrets, separated by a comma.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/storageapi/storageapi/signing"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8443", "where to listen")
	certFile := flag.String("cert", "cert.pem", "PEM file with the certificate chain")
	keyFile := flag.String("key", "key.pem", "PEM file with its private key")
	flag.Parse()
	if err := run(*addr, *certFile, *keyFile, os.Getenv("WEBHOOK_SECRET")); err != nil {
		log.Fatal("receiver: ", err)
	}
}

func run(addr, certFile, keyFile, secrets string) error {
	handler, err := newHandler(secrets)
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:              addr,
		Handler:           handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.Printf("listening on https://%s", addr)
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServeTLS(certFile, keyFile) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return server.Shutdown(ctx) // requests under way finish
	}
}

// newHandler returns a handler that prints the events signed with one of the
// comma-separated secrets and refuses everything else.
func newHandler(secrets string) (http.Handler, error) {
	var config signing.VerifierConfig
	for text := range strings.SplitSeq(secrets, ",") {
		secret, err := signing.ParseSecret(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("WEBHOOK_SECRET: %w", err)
		}
		config.Secrets = append(config.Secrets, secret)
	}
	verifier, err := signing.NewVerifier(config)
	if err != nil {
		return nil, err
	}
	r := &receiver{seen: make(map[string]bool)}
	return verifier.Handler(http.HandlerFunc(r.receive)), nil
}

// remembered is how many event ids a receiver remembers: no more, since senders never
// stop.
const remembered = 10_000

// A receiver handles each event once, while it remembers it. A real one would keep
// the ids where it keeps what it does with the events, in the same transaction, for as
// long as the sender may repeat them.
type receiver struct {
	mu     sync.Mutex
	seen   map[string]bool // by event id
	recent [remembered]string
	oldest int // in recent, the next to be forgotten
}

// isNew reports whether the event has not come before, and remembers it.
func (r *receiver) isNew(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		return false
	}
	delete(r.seen, r.recent[r.oldest])
	r.seen[id], r.recent[r.oldest] = true, id
	r.oldest = (r.oldest + 1) % remembered
	return true
}

// receive runs only for verified requests.
func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	var event struct {
		ID        string          `json:"id"`
		Type      string          `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(req.Body).Decode(&event); err != nil {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	if r.isNew(event.ID) { // a delivery can come more than once
		log.Printf("%s %s %s", event.Type, event.ID, event.Data)
	}
	w.WriteHeader(http.StatusNoContent) // answer soon; work that takes long goes elsewhere
}
