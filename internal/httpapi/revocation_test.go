package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// A streamHost is a host with routes of its own. /stream writes a line, waits until its context
// ends, and writes the cause.
type streamHost struct {
	*host
	client *http.Client
	causes chan error
}

func serveStreams(t *testing.T, http2 bool, config storageapi.Config) *streamHost {
	t.Helper()
	api := newAPI(t, config)
	s := &streamHost{causes: make(chan error, 10)}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /stream", api.Auth.Require(scopes.FilesRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		s.causes <- context.Cause(r.Context())
		_, _ = io.WriteString(w, "ended\n")
	})))
	mux.Handle("GET /hijack", api.Auth.Require(scopes.FilesRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun\n")
		<-r.Context().Done()
		s.causes <- context.Cause(r.Context())
		_, _ = io.WriteString(conn, "ended\n")
	})))
	mux.Handle("DELETE /me", api.Auth.Require(scopes.FilesRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := auth.PrincipalFrom(r.Context())
		if err := api.Keys.Delete(r.Context(), caller.Account, caller.KeyID, apikeys.DeleteParams{}); err != nil {
			t.Error(err)
		}
		s.causes <- context.Cause(r.Context())
		w.WriteHeader(http.StatusNoContent)
	})))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	s.host, s.client = &host{t, api, server.URL}, server.Client()
	return s
}

// open starts a streamed request and returns a reader for the lines after the first.
func (s *streamHost) open(path, token string) *bufio.Reader {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), "GET", s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Api-Key", token)
	response, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { response.Body.Close() })
	body := bufio.NewReader(response.Body)
	if line, err := body.ReadString('\n'); line != "begun\n" {
		s.Fatalf("%s: %d %q, %v", path, response.StatusCode, line, err)
	}
	return body
}

func (s *streamHost) wantEnd(body io.Reader, cause error) {
	s.Helper()
	if got := <-s.causes; !errors.Is(got, cause) {
		s.Errorf("cause %v, want %v", got, cause)
	}
	if rest, err := io.ReadAll(body); string(rest) != "ended\n" || err != nil {
		s.Errorf("the stream ended with %q, %v", rest, err)
	}
}

func TestStream_KeyEnds_EndsOverEachProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		http2 bool
		path  string
	}{"HTTP/1.1": {false, "/stream"}, "HTTP/2": {true, "/stream"}, "hijacked": {false, "/hijack"}} {
		t.Run(name, func(t *testing.T) {
			s := serveStreams(t, test.http2, newClock().config())
			otherID, other := s.key(alice, scopes.FilesRead)
			otherBody := s.open("/stream", other) // HTTP/2 uses the same connection
			for reason, end := range map[string]func(id string) error{
				"deleted": func(id string) error { return s.api.Keys.Delete(t.Context(), alice, id, apikeys.DeleteParams{}) },
				"rotated": func(id string) error {
					_, _, err := s.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{})
					return err
				},
				"disabled": func(id string) error {
					_, err := s.api.Keys.Update(t.Context(), alice, id, apikeys.UpdateParams{Enabled: new(bool)})
					return err
				},
			} {
				id, token := s.key(alice, scopes.FilesRead)
				body := s.open(test.path, token)
				if err := end(id); err != nil {
					t.Fatal(err)
				}
				s.wantEnd(body, map[string]error{"deleted": auth.ErrKeyDeleted, "rotated": auth.ErrKeyReplaced, "disabled": auth.ErrKeyDisabled}[reason])
			}
			_, token := s.key(bob, scopes.FilesRead)
			erased := s.open(test.path, token)
			if _, err := s.api.Erase(t.Context(), bob); err != nil {
				t.Fatal(err)
			}
			s.wantEnd(erased, auth.ErrKeyDeleted)

			select {
			case err := <-s.causes:
				t.Errorf("a stream of another key ended: %v", err)
			default:
			}
			if err := s.api.Keys.Delete(t.Context(), alice, otherID, apikeys.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
			s.wantEnd(otherBody, auth.ErrKeyDeleted)
		})
	}
}

func TestStream_KeyRotatedWithGrace_GoesOnUntilItsEnd(t *testing.T) {
	clock := newClock()
	s := serveStreams(t, false, clock.config())
	id, token := s.key(alice, scopes.FilesRead)
	body := s.open("/stream", token)
	if _, _, err := s.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{Grace: time.Hour}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.causes:
		t.Fatalf("ended during the grace period: %v", err)
	default:
	}
	if _, _, err := s.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{Grace: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s.wantEnd(body, auth.ErrKeyReplaced) // a second rotation ends the grace period of the first
}

func TestDeleteKey_OfTheRequestItself_IsAnswered(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := serveStreams(t, http2, newClock().config())
		for _, path := range []string{"/me", keysPath} {
			id, token := s.key(alice, scopes.FilesRead)
			if path == keysPath {
				path += "/" + id
			}
			r, err := http.NewRequestWithContext(t.Context(), "DELETE", s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Api-Key", token)
			response, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusNoContent {
				t.Errorf("%s: status %d, want 204", path, response.StatusCode)
			}
		}
		if got := <-s.causes; got != auth.ErrKeyDeleted {
			t.Errorf("the request that deleted its key: cause %v, want %v", got, auth.ErrKeyDeleted)
		}
	}
}
