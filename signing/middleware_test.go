package signing_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/storageapi/storageapi/signing"
)

func TestHandler(t *testing.T) {
	const body = `{"ok":true}` // 11 bytes
	long := strings.Repeat("x", 65)
	full := strings.Repeat("x", 64)
	unknownLength := func(r *http.Request) { r.ContentLength = -1; r.TransferEncoding = []string{"chunked"} }
	tests := []struct {
		name     string
		signed   string // the body that was signed
		sent     string
		change   func(*http.Request)
		status   int
		wantBody string
	}{
		{"accepted", body, body, nil, 204, ""},
		{"empty", "", "", nil, 204, ""},
		{"maximum length", full, full, nil, 204, ""},
		{"chunked", body, body, unknownLength, 204, ""},
		{"too long", long, long, nil, 413, "body too large\n"},
		{"chunked and too long", long, long, unknownLength, 413, "body too large\n"},
		{"tampered with", body, body + " ", nil, 401, "invalid signature\n"},
		{"stale", body, body, func(r *http.Request) { r.Header.Set("Webhook-Timestamp", "1") }, 401, "invalid signature\n"},
		{"unsigned", body, body, func(r *http.Request) { clear(r.Header) }, 401, "invalid signature\n"},
		{"unsigned and too long", long, long, func(r *http.Request) { clear(r.Header) }, 401, "invalid signature\n"},
		{"interrupted", body, body, func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(r.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, 400, "unreadable body\n"},
	}
	verifier := newVerifier(t, signing.VerifierConfig{
		Secrets: []signing.Secret{secretA}, MaxBody: 64, Now: at(signed),
	})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/hook", strings.NewReader(test.sent))
			r.Header = header(t, signed, test.signed, secretA)
			if test.change != nil {
				test.change(r)
			}
			before := *r
			called := false
			handler := verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called = true
				got, err := io.ReadAll(r.Body)
				if err != nil || string(got) != test.sent {
					t.Errorf("next read %q, %v; want %q", got, err, test.sent)
				}
				if r.ContentLength != int64(len(test.sent)) || r.TransferEncoding != nil {
					t.Errorf("next got ContentLength %d, TransferEncoding %v", r.ContentLength, r.TransferEncoding)
				}
				w.WriteHeader(http.StatusNoContent)
			}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != test.status || w.Body.String() != test.wantBody {
				t.Errorf("status %d, body %q; want %d, %q", w.Code, w.Body, test.status, test.wantBody)
			}
			if called != (test.status == 204) {
				t.Errorf("next called: %v", called)
			}
			if r.Body != before.Body || r.ContentLength != before.ContentLength {
				t.Error("the caller's request was changed")
			}
		})
	}
}

// Invalid headers must be rejected before the body is read.
func TestHandler_UnsignedRequest_RejectsBeforeReadingBody(t *testing.T) {
	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretA}})
	read := false
	r := httptest.NewRequest("POST", "/hook", readerFunc(func([]byte) (int, error) {
		read = true
		return 0, errors.New("read")
	}))
	w := httptest.NewRecorder()
	verifier.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if read || w.Code != 401 {
		t.Errorf("body read: %v, status %d", read, w.Code)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A real connection changes the case of header names.
func TestHandler_OverHTTP_VerifiesRequest(t *testing.T) {
	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretA}, Header: "x-acme-SIG"})
	server := httptest.NewServer(verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	defer server.Close()
	signer, err := signing.NewSigner("X-ACME-sig", secretA)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	signer.Sign(r.Header, "evt_1", time.Now(), []byte("{}"))
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	echo, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || string(echo) != "{}" {
		t.Errorf("status %d, body %q, %v", response.StatusCode, echo, err)
	}
}
