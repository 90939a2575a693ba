package postgres_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// A watched is a change that WatchKeys reports.
type watched struct{ account, id string }

// watches makes a store watch keys until the test ends.
func watches(t *testing.T, s *postgres.Store) (changes chan watched, ended chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended = make(chan watched, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		s.Capabilities().WatchKeys(ctx, func(account, id string) { changes <- watched{account, id} })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return changes, ended
}

func TestWatchKeys_AnotherProcessChangesKeys_ReportsThem(t *testing.T) {
	t.Parallel()
	const account = "acct 1\n+%2F/é"
	option := inSchema(t)
	a, b, elsewhere := open(t, option), open(t, option), open(t, inSchema(t))
	changes, ended := watches(t, a)
	_, endedElsewhere := watches(t, elsewhere)
	key := keyNo(1)
	key.Account, key.ID = account, "key 1\n%"
	if err := b.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rename := func() {
		if _, err := b.UpdateKey(t.Context(), account, key.ID, func(k *driver.Key, _ *audit.Entry) error {
			k.Name += "x"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it listens", func() bool { rename(); return len(changes) > 0 })
	if err := b.DeleteKey(t.Context(), account, key.ID, nil, audit.Entry{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.EraseAccount(t.Context(), account, 100); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watched{{account, key.ID}, {account, ""}} {
		for got := range changes {
			if got == want {
				break
			}
			if got != (watched{account, key.ID}) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := elsewhere.Close(); err != nil {
		t.Fatal(err)
	}
	<-endedElsewhere
}

// revocations starts requests on one process and revokes their keys on another.
type revocations struct {
	testing.TB
	ours, theirs *apikeys.KeyService
	other        *postgres.Store
	guard        *auth.Authenticator
	group        sync.WaitGroup
}

func newRevocations(t testing.TB, options ...postgres.Option) *revocations {
	t.Helper()
	options = append(options, inSchema(t))
	one, other := open(t, options...), open(t, options...)
	r := &revocations{TB: t, other: other}
	for service, s := range map[**apikeys.KeyService]*postgres.Store{&r.ours: one, &r.theirs: other} {
		created, err := apikeys.New(s, apikeys.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(created.Close)
		*service = created
	}
	guard, err := auth.New(r.ours, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.guard = guard
	t.Cleanup(func() { r.group.Wait(); guard.Close() })
	return r
}

// start creates a key and starts a request with it. The channel receives the reason for which the
// request ends.
func (r *revocations) start(account string) (id string, cause <-chan error) {
	r.Helper()
	key, token, err := r.theirs.Create(r.Context(), account, apikeys.CreateParams{Name: "k", Scopes: scopes.Specified()})
	if err != nil {
		r.Fatal(err)
	}
	entered, ended := make(chan struct{}), make(chan error, 1)
	handler := r.guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		close(entered)
		<-request.Context().Done()
		ended <- context.Cause(request.Context())
	}))
	request := httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/", nil)
	request.Header.Set(auth.HeaderName, token.Reveal())
	r.group.Go(func() { handler.ServeHTTP(httptest.NewRecorder(), request) })
	<-entered
	return key.ID, ended
}

func TestWatchKeys_ChangedByAnotherProcess_EndsRequests(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]postgres.Option{"notified": nil, "polling": {postgres.PollOnly()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRevocations(t, options...)
			lives, livesCause := r.start("acct")
			for range 2 {
				deleted, deletedCause := r.start("acct")
				rotated, rotatedCause := r.start("acct")
				_, erasedCause := r.start("acct_2")
				if err := r.theirs.Delete(t.Context(), "acct", deleted, apikeys.DeleteParams{}); err != nil {
					t.Fatal(err)
				}
				if _, _, err := r.theirs.Rotate(t.Context(), "acct", rotated, apikeys.RotateParams{}); err != nil {
					t.Fatal(err)
				}
				for more := true; more; {
					var err error
					if _, more, err = r.other.EraseAccount(t.Context(), "acct_2", 100); err != nil {
						t.Fatal(err)
					}
				}
				for want, cause := range map[error]<-chan error{auth.ErrKeyReplaced: rotatedCause, auth.ErrKeyDeleted: deletedCause} {
					if got := <-cause; got != want {
						t.Errorf("cause %v, want %v", got, want)
					}
				}
				if got := <-erasedCause; got != auth.ErrKeyDeleted {
					t.Errorf("account erased: cause %v, want %v", got, auth.ErrKeyDeleted)
				}
			}
			select {
			case got := <-livesCause:
				t.Errorf("the request of a live key ended: %v", got)
			default:
			}
			if err := r.theirs.Delete(t.Context(), "acct", lives, apikeys.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
			<-livesCause
		})
	}
}

// BenchmarkWatchKeys measures the time from the return of a key's deletion to the end of a request
// in another process, with and without notifications.
func BenchmarkWatchKeys(b *testing.B) {
	for name, options := range map[string][]postgres.Option{"notified": nil, "polling": {postgres.PollOnly()}} {
		b.Run(name, func(b *testing.B) {
			r := newRevocations(b, options...)
			var waits []time.Duration
			revoke := func() time.Duration {
				id, cause := r.start("acct")
				if err := r.theirs.Delete(b.Context(), "acct", id, apikeys.DeleteParams{}); err != nil {
					b.Fatal(err)
				}
				deleted := time.Now()
				<-cause
				return time.Since(deleted)
			}
			for range 5 { // until it listens
				revoke()
			}
			for b.Loop() {
				waits = append(waits, revoke())
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op") // includes the creation
		})
	}
}
