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

// A Receiver is a host in process that gets webhooks. It verifies what it is sent, and
// records it. It is safe for concurrent use.
type Receiver struct {
	// URL is where it is: https, and a name of its own.
	URL string

	// Webhook is the one that [Kit.Subscribe] made, as it was then. Zero: none.
	Webhook webhooks.Webhook

	kit     *Kit
	network *network

	mu       sync.Mutex
	secrets  []signing.Secret
	script   script
	requests []Request
	given    int // events that Next returned
}

// A Request is one that a receiver got.
type Request struct {
	At     time.Time // when it arrived
	Event  Event
	Header http.Header
	Body   []byte
	Err    error // why it is not signed as it should be
	Status int   // of the response; 0 if there was none, or not yet
}

// An Event is what a request tells.
type Event struct {
	ID        string             `json:"id"`
	Type      webhooks.EventType `json:"type"`
	Timestamp time.Time          `json:"timestamp"`
	Data      json.RawMessage    `json:"data"`
}

// Trust makes the receiver accept what this secret signs, with those that it trusts
// already, up to the last 16: after [webhooks.WebhookService.RotateSecret], or where code
// under test made the webhook. [signing.ParseSecret] takes the secret of an HTTP response.
func (r *Receiver) Trust(secret signing.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(r.secrets, secret)
	r.secrets = r.secrets[max(0, len(r.secrets)-16):]
}

// Script makes the receiver behave so from now on, one after the other, and [OK] after the
// last. It takes the place of what is left of an earlier script.
func (r *Receiver) Script(steps ...Behavior) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script{steps: slices.Clone(steps), since: time.Now()}
}

// Requests returns all requests so far, in the order in which they arrived; those of the
// same moment in the order of their events' ids.
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

// Events returns the events that the receiver accepted with a status of 2xx, each once, in
// the order of [Receiver.Requests].
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

// Next waits for the next event that the receiver accepts, and returns it: the first call
// returns the first of [Receiver.Events], the second call the second. It fails the test if
// none comes within [Patience].
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
		last := "there was no request"
		if n := len(requests); n > 0 {
			last = fmt.Sprintf("%d came, and the last was answered %s", n, requests[n-1].outcome())
		}
		r.kit.t.Fatalf("storageapitest: %s accepted no event for %v: %s", r.URL, r.kit.patience, last)
	}
	return next
}

// outcome says what became of a request.
func (q *Request) outcome() string {
	switch {
	case q.Err != nil:
		return "401: " + q.Err.Error()
	case q.Status == 0:
		return "by no response"
	}
	return strconv.Itoa(q.Status)
}

// serve takes a request, as the receiver's script has it.
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

// verify checks that a secret that the receiver trusts signed the request.
func (r *Receiver) verify(header http.Header, body []byte) error {
	r.mu.Lock()
	secrets := slices.Clone(r.secrets)
	r.mu.Unlock()
	if len(secrets) == 0 {
		return errors.New("the receiver trusts no secret yet: see Receiver.Trust")
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: secrets, Header: r.kit.header})
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
	r.script = before // the request asks again
	return false
}

// A watched response knows its status.
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

// Unwrap is for [http.ResponseController].
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
