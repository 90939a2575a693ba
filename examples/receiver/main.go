// Receiver is a webhook receiver to copy. It verifies each request's signature and
// prints the event.
//
//	WEBHOOK_SECRET=whsec_… go run ./examples/receiver -addr :8443 -cert cert.pem -key key.pem
//
// Senders must trust the certificate. To try it on one machine, create a self-signed
// certificate and add it to the sender's roots:
//
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
//		-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem
//
// During a rotation, set WEBHOOK_SECRET to both secrets, separated by a comma.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
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
		return server.Shutdown(ctx) // requests in flight finish
	}
}

// newHandler returns a handler that prints the events signed with one of the
// comma-separated secrets and refuses everything else.
func newHandler(secrets string) (http.Handler, error) {
	if secrets == "" {
		return nil, errors.New("set WEBHOOK_SECRET to the webhook's signing secret, whsec_…")
	}
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

// remembered is the number of event IDs that a receiver remembers, to bound memory.
const remembered = 10_000

// A receiver handles each event once, while it remembers the ID. A real receiver stores
// the ID in the same transaction as the result of handling the event, and keeps it while
// the sender may repeat the event.
type receiver struct {
	mu     sync.Mutex
	seen   map[string]bool // by event ID
	recent [remembered]string
	oldest int // index in recent of the next ID to forget
}

// isNew reports whether the event is new, and remembers it.
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

// receive handles a verified request.
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
	if r.isNew(event.ID) { // events can arrive more than once
		log.Printf("%s %s %s", event.Type, event.ID, event.Data)
	}
	w.WriteHeader(http.StatusNoContent) // answer soon; do slow work elsewhere
}
