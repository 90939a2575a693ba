package storageapitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// A Receiver is an in-process webhook receiver. It verifies and records requests. It is safe
// for concurrent use.
type Receiver struct {
	// URL is the https URL of the receiver. Its host is unique.
	URL string

	// Webhook is the webhook as created by [Kit.Subscribe]. Zero means none.
	Webhook webhooks.Webhook

	kit     *Kit
	network *network

	mu       sync.Mutex
	secrets  []signing.Secret
	script   script
	requests []Request
	given    int // events returned by Next
}

// A Request is a request that a receiver has received.
type Request struct {
	At     time.Time // when it arrived
	Event  Event
	Header http.Header
	Body   []byte
	Err    error // why it was refused: an invalid signature or JSON
	Status int   // response status; 0 if there is no response (yet)
}

// An Event is the JSON content of a request.
type Event struct {
	ID        string             `json:"id"`
	Type      webhooks.EventType `json:"type"`
	Timestamp time.Time          `json:"timestamp"`
	Data      json.RawMessage    `json:"data"`
}

// Trust makes the receiver also accept requests signed with secret. It keeps the last 16
// secrets. Call it after [webhooks.WebhookService.RotateSecret], or if code under test created
// the webhook. Use [signing.ParseSecret] for a secret from an HTTP response.
func (r *Receiver) Trust(secret signing.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(r.secrets, secret)
	r.secrets = r.secrets[max(0, len(r.secrets)-16):]
}

// Script makes the receiver follow the steps one after the other, starting now, and then
// [OK]. It replaces the rest of an earlier script.
func (r *Receiver) Script(steps ...Behavior) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script{steps: slices.Clone(steps), since: time.Now()}
}

// Requests returns all requests so far in order of arrival. Simultaneous requests are ordered
// by event ID.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.requests)
	slices.SortStableFunc(all, func(a, b Request) int {
		if order := a.At.Compare(b.At); order != 0 {
			return order
		}
		return bytes.Compare([]byte(a.Event.ID), []byte(b.Event.ID))
	})
	return all
}

// Events returns the events that the receiver accepted with a 2xx status, without duplicates,
// in the order of [Receiver.Requests].
func (r *Receiver) Events() (events []Event) {
	seen := make(map[string]bool)
	for _, request := range r.Requests() {
		if request.Err == nil && request.Status/100 == 2 && !seen[request.Event.ID] {
			seen[request.Event.ID] = true
			events = append(events, request.Event)
		}
	}
	return events
}

// Next waits for the next event that the receiver accepts, and returns it. The first call
// returns the first of [Receiver.Events], the second call the second. It fails the test if
// no event arrives within [Patience].
func (r *Receiver) Next() (next Event) {
	r.kit.t.Helper()
	came := r.network.wait(r.kit.patience, func() bool {
		events := r.Events()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(events) <= r.given {
			return false
		}
		next = events[r.given]
		r.given++
		return true
	})
	if !came {
		requests := r.Requests()
		last := "it got no request"
		if n := len(requests); n > 0 {
			last = fmt.Sprintf("it got %d requests, the last answered %s", n, requests[n-1].outcome())
		}
		r.kit.t.Fatalf("storageapitest: %s accepted no event for %v: %s", r.URL, r.kit.patience, last)
	}
	return next
}

// outcome describes the response to a request.
func (q *Request) outcome() string {
	switch {
	case q.Err != nil:
		return "401: " + q.Err.Error()
	case q.Status == 0:
		return "by no response"
	}
	return strconv.Itoa(q.Status)
}

// serve answers a request according to the receiver's script.
func (r *Receiver) serve(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	got := Request{At: now, Header: request.Header.Clone(), Body: body, Err: r.verify(request.Header, body)}
	if err := json.Unmarshal(body, &got.Event); err != nil && got.Err == nil {
		got.Err = err
	}
	r.mu.Lock()
	n := len(r.requests)
	r.requests = append(r.requests, got)
	behavior := r.script.next(now)
	r.mu.Unlock()
	defer r.network.changed()

	response := &watched{ResponseWriter: w}
	switch {
	case got.Err != nil:
		http.Error(response, "invalid signature", http.StatusUnauthorized)
	case behavior.serve != nil:
		request.Body = io.NopCloser(bytes.NewReader(body))
		behavior.serve.ServeHTTP(response, request)
	}
	if response.status == 0 {
		response.WriteHeader(http.StatusOK)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[n].Status = response.status
}

// verify checks that the request is signed with a trusted secret.
func (r *Receiver) verify(header http.Header, body []byte) error {
	r.mu.Lock()
	secrets := slices.Clone(r.secrets)
	r.mu.Unlock()
	if len(secrets) == 0 {
		return errors.New("the receiver has no secret yet: call Receiver.Trust")
	}
	var keys []signing.PublicKey
	for _, secret := range secrets {
		keys = append(keys, secret.PublicKey())
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: secrets, PublicKeys: keys, Header: r.kit.header})
	if err != nil {
		return err
	}
	return verifier.Verify(header, body)
}

// refuses reports whether a connection is refused now.
func (r *Receiver) refuses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.script
	if r.script.next(time.Now()).down {
		return true
	}
	r.script = before // serve counts the request
	return false
}

// A watched ResponseWriter records the status.
type watched struct {
	http.ResponseWriter
	status int
}

func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap supports [http.ResponseController].
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
