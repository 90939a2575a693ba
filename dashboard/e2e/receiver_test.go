package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A receiver is an HTTPS server that receives events and gives the configured response.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	body   string
	delay  time.Duration
	held   chan struct{} // the receiver responds once it is closed; nil means immediately
	check  func(http.Header, []byte) error
	wrong  []error
}

func (r *receiver) answer(status int, body string, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.body, r.delay = status, body, delay
}

// hold delays all responses of the receiver until release is called.
func (r *receiver) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(chan struct{})
	r.held = held
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held = nil
		close(held)
	}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusOK, body: `{"received":true}`}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(r.receive))
	if *screenshots { // screenshots need the same address in each run
		listener, err := net.Listen("tcp", "127.0.0.1:8443")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Listener.Close()
		r.Listener = listener
	}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	r.mu.Lock()
	status, answer, delay, held := r.status, r.body, r.delay, r.held
	if err == nil && r.check != nil {
		err = r.check(request.Header, body)
	}
	if err != nil {
		r.wrong = append(r.wrong, err)
	}
	r.mu.Unlock()
	if request.URL.Path == "/gone" {
		status, answer = http.StatusGone, "no more"
	}
	if request.URL.Path == "/down" {
		status, answer = http.StatusServiceUnavailable, outage
	}
	time.Sleep(delay)
	if held != nil {
		select {
		case <-held:
		case <-request.Context().Done():
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

// trust makes the receiver verify requests with these secrets, in the form in which pages show
// them.
func (r *receiver) trust(t *testing.T, texts ...string) {
	t.Helper()
	var secrets []signing.Secret
	for _, text := range texts {
		secret, err := signing.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check = verifier.Verify
}

// verified checks that all requests were signed correctly.
func (r *receiver) verified(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.wrong {
		t.Error(err)
	}
	r.wrong = nil
}
