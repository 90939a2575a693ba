package auth_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

// ledger is a Watcher. The test changes its keys as this process or as another process.
type ledger struct {
	mu       sync.Mutex
	keys     map[string]auth.Principal
	refusals map[string]observe.Outcome // outcomes for values without a key
	failing  bool
	verifies atomic.Int64

	onChange func(account, keyID string)
	watching chan func(account, keyID string) // receives the function passed to each call to Watch; nil means that Watch returns at once
}

func newLedger(principals ...auth.Principal) *ledger {
	l := &ledger{keys: make(map[string]auth.Principal), refusals: make(map[string]observe.Outcome)}
	for _, p := range principals {
		l.keys[p.KeyID] = p
	}
	return l
}

func (l *ledger) Verify(ctx context.Context, token string) (auth.Principal, error) {
	l.verifies.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return auth.Principal{}, err
	}
	if l.failing {
		return auth.Principal{}, errBroken
	}
	if p, ok := l.keys[token]; ok {
		return p, nil
	}
	return auth.Principal{}, &auth.Refusal{Outcome: l.refusals[token]}
}

func (l *ledger) OnChange(changed func(account, keyID string)) { l.onChange = changed }

func (l *ledger) Watch(ctx context.Context, changed func(account, keyID string)) {
	if l.watching != nil {
		l.watching <- changed
		<-ctx.Done()
	}
}

// fail makes Verify fail from now on.
func (l *ledger) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing = true
}

// set changes a key without reporting the change; a nil p removes the key.
func (l *ledger) set(token string, p *auth.Principal, refusal observe.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, token)
	if p != nil {
		l.keys[token] = *p
	}
	l.refusals[token] = refusal
}

// principalOf returns a principal for a key whose value equals its ID.
func principalOf(keyID string) auth.Principal {
	return auth.Principal{Account: "acct", KeyID: keyID, Scopes: scopes.Of(scopes.FilesRead)}
}

// A runningRequest is a request whose handler runs until its context ends or the test ends it.
type runningRequest struct {
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{} // closed when the guard has returned
}

// start starts a request and returns once its handler is running.
func start(t *testing.T, a *auth.Authenticator, token string, options ...auth.RouteOption) *runningRequest {
	t.Helper()
	r := &runningRequest{done: make(chan struct{})}
	entered, stopped := make(chan struct{}), make(chan struct{})
	r.stop = sync.OnceFunc(func() { close(stopped); <-r.done })
	t.Cleanup(r.stop)
	handler := a.Require(scopes.FilesRead, http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		r.ctx = request.Context()
		close(entered)
		<-stopped
	}), options...)
	go func() {
		defer close(r.done)
		handler.ServeHTTP(httptest.NewRecorder(), request(token))
	}()
	<-entered
	return r
}

// cause returns the cause of the cancellation of r's context, or nil if the context has not ended.
func (r *runningRequest) cause() error {
	select {
	case <-r.ctx.Done():
	default:
		if r.ctx.Err() != nil {
			return errors.New("Err but not Done")
		}
	}
	return context.Cause(r.ctx)
}

func newGuard(t *testing.T, verifier auth.Verifier, config auth.Config) *auth.Authenticator {
	t.Helper()
	a, err := auth.New(verifier, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestRunningRequest_KeyEnds_IsCanceledWithCause(t *testing.T) {
	for _, test := range []struct {
		name    string
		outcome observe.Outcome
		want    error
	}{
		{"deleted", observe.Unknown, auth.ErrKeyDeleted},
		{"expired", observe.Expired, auth.ErrKeyExpired},
		{"replaced", observe.Replaced, auth.ErrKeyReplaced},
		{"disabled", observe.Disabled, auth.ErrKeyDisabled},
	} {
		for _, whole := range []bool{false, true} {
			keys := newLedger(principalOf("key_1"), principalOf("key_2"))
			a := newGuard(t, keys, auth.Config{})
			ended, other, outlives := start(t, a, "key_1"), start(t, a, "key_2"), start(t, a, "key_1", auth.OutlivesKey())
			derived, cancel := context.WithTimeout(auth.WithPrincipal(ended.ctx, writer), time.Hour)
			defer cancel()
			called := make(chan error, 1)
			context.AfterFunc(ended.ctx, func() { called <- context.Cause(ended.ctx) })

			keys.set("key_1", nil, test.outcome)
			if err := ended.cause(); err != nil {
				t.Fatalf("%s: before the notification: cause %v", test.name, err)
			}
			if whole {
				keys.onChange("acct", "")
			} else {
				keys.onChange("acct", "key_1")
			}
			if got := ended.cause(); got != test.want || ended.ctx.Err() != context.Canceled {
				t.Errorf("%s: cause %v, error %v; want %v, %v", test.name, got, ended.ctx.Err(), test.want, context.Canceled)
			}
			if got := context.Cause(derived); got != test.want {
				t.Errorf("%s: cause of a derived context %v, want %v", test.name, got, test.want)
			}
			if got := <-called; got != test.want {
				t.Errorf("%s: AfterFunc: cause %v, want %v", test.name, got, test.want)
			}
			for name, r := range map[string]*runningRequest{"of another key": other, "on a route that declines": outlives} {
				if err := r.cause(); err != nil {
					t.Errorf("%s: request %s: cause %v, want none", test.name, name, err)
				}
			}
			for _, ctx := range []context.Context{ended.ctx, outlives.ctx} {
				if _, err := auth.Recheck(ctx); !errors.Is(err, auth.ErrUnauthorized) {
					t.Errorf("%s: Recheck = %v, want ErrUnauthorized", test.name, err)
				}
			}
		}
	}
}

func TestRunningRequest_KeyChangesAndLives_GoesOn(t *testing.T) {
	keys := newLedger(principalOf("key_1"))
	a := newGuard(t, keys, auth.Config{})
	r := start(t, a, "key_1")
	a.Changed("acct", "key_1")
	a.Changed("acct_2", "")
	a.Changed("acct_2", "key_1")
	keys.fail()
	a.Changed("acct", "key_1")
	if err := r.cause(); err != nil {
		t.Errorf("cause %v, want none", err)
	}
}

// A request that has been answered must not be canceled because of its key.
func TestRunningRequest_Answered_IsNotEndedByItsKey(t *testing.T) {
	keys := newLedger(principalOf("key_1"))
	a := newGuard(t, keys, auth.Config{})
	idle, waited := start(t, a, "key_1"), start(t, a, "key_1")
	if err := waited.cause(); err != nil {
		t.Fatal(err)
	}
	idle.stop()
	waited.stop()
	keys.set("key_1", nil, observe.Unknown)
	a.Changed("acct", "key_1")
	if got := idle.cause(); got != nil {
		t.Errorf("cause %v, want none", got)
	}
	if got := waited.cause(); got != context.Canceled {
		t.Errorf("cause %v, want %v as after any request", got, context.Canceled)
	}
}

func TestRunningRequest_ClientDisconnects_HasClientsCause(t *testing.T) {
	a := newGuard(t, newLedger(principalOf("key_1")), auth.Config{})
	gone := errors.New("client is gone")
	parent, cancel := context.WithCancelCause(t.Context())
	serve(t, a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		done := ctx.Done()
		cancel(gone)
		<-done
		if ctx.Err() != context.Canceled || context.Cause(ctx) != gone {
			t.Errorf("error %v, cause %v; want %v, %v", ctx.Err(), context.Cause(ctx), context.Canceled, gone)
		}
	})), request("key_1").WithContext(parent))
}

func TestRunningRequest_ValueExpires_IsCanceledThen(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		now := time.Now()
		until := func(id string, d time.Duration, replaced bool) auth.Principal {
			p := principalOf(id)
			p.ExpiresAt, p.Replaced = now.Add(d), replaced
			return p
		}
		keys := newLedger(until("key_1", time.Hour, false), until("key_2", 30*time.Minute, true), until("key_3", time.Hour, false), principalOf("key_4"))
		a := newGuard(t, keys, auth.Config{})
		requests := map[string]*runningRequest{}
		for id := range keys.keys {
			requests[id] = start(t, a, id)
		}
		for id, change := range map[string]auth.Principal{"key_3": until("key_3", 10*time.Minute, true), "key_4": until("key_4", 20*time.Minute, false)} {
			keys.set(id, &change, "")
			a.Changed("acct", id)
		}
		want := map[string]error{}
		for _, step := range []struct {
			at   time.Duration
			id   string
			want error
		}{
			{10 * time.Minute, "key_3", auth.ErrKeyReplaced}, // rotated during the request
			{20 * time.Minute, "key_4", auth.ErrKeyExpired},  // its expiry was shortened during the request
			{30 * time.Minute, "key_2", auth.ErrKeyReplaced},
			{time.Hour, "key_1", auth.ErrKeyExpired},
		} {
			for _, at := range []time.Duration{step.at - time.Millisecond, step.at + time.Millisecond} {
				time.Sleep(time.Until(now.Add(at)))
				synctest.Wait()
				if at > step.at {
					want[step.id] = step.want
				}
				for id, r := range requests {
					if got := r.cause(); got != want[id] {
						t.Errorf("after %v: %s: cause %v, want %v", at, id, got, want[id])
					}
				}
			}
		}
		for _, r := range requests {
			r.stop()
		}
	})
}

func TestRunningRequest_ClockIsSetForward_EndsWithinAMinute(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		p := principalOf("key_1")
		p.ExpiresAt = time.Now().Add(24 * time.Hour)
		var ahead atomic.Int64
		a := newGuard(t, newLedger(p), auth.Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		r := start(t, a, "key_1")
		time.Sleep(time.Hour)
		ahead.Store(int64(24 * time.Hour))
		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		if got := r.cause(); got != auth.ErrKeyExpired {
			t.Errorf("cause %v, want %v", got, auth.ErrKeyExpired)
		}
		r.stop()
	})
}

// changesOnce deletes the key during its first verification, after reading it and before Verify
// returns.
type changesOnce struct {
	*ledger
	once sync.Once
}

func (c *changesOnce) Verify(ctx context.Context, token string) (auth.Principal, error) {
	p, err := c.ledger.Verify(ctx, token)
	c.once.Do(func() {
		c.set(token, nil, observe.Unknown)
		c.onChange("acct", token)
	})
	return p, err
}

func TestHandler_KeyDeletedWhileVerified_IsUnauthorized(t *testing.T) {
	a := newGuard(t, &changesOnce{ledger: newLedger(principalOf("key_1"))}, auth.Config{})
	if response, _ := serve(t, a.Handler(unreachable(t)), request("key_1")); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d, want 401", response.StatusCode)
	}
}

func TestWatch_AnotherProcessDeletesKey_EndsRequest(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		keys := newLedger(principalOf("key_1"), principalOf("key_2"), principalOf("key_3"))
		keys.watching = make(chan func(account, keyID string), 1)
		a := newGuard(t, keys, auth.Config{})
		notified, lost, lives := start(t, a, "key_1"), start(t, a, "key_2"), start(t, a, "key_3")
		changed := <-keys.watching
		keys.set("key_1", nil, observe.Unknown)
		changed("acct", "key_1")
		if got := notified.cause(); got != auth.ErrKeyDeleted {
			t.Errorf("notified: cause %v, want %v", got, auth.ErrKeyDeleted)
		}
		keys.set("key_2", nil, observe.Replaced)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := lost.cause(); got != auth.ErrKeyReplaced {
			t.Errorf("a second after a lost notification: cause %v, want %v", got, auth.ErrKeyReplaced)
		}
		// While the store is unavailable, no request ends.
		keys.fail()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := lives.cause(); got != nil {
			t.Errorf("store failing: cause %v, want none", got)
		}
		for _, r := range []*runningRequest{notified, lost, lives} {
			r.stop()
		}
		verifies := keys.verifies.Load()
		time.Sleep(time.Minute)
		if got := keys.verifies.Load(); got != verifies {
			t.Errorf("%d keys verified without requests under way", got-verifies)
		}
		a.Close()
		serve(t, a.Handler(principal), request("key_1"))
	}) // testing/synctest fails the test if the watch is still running
}

func TestWatch_StoreOfOneProcess_PollsNothing(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		keys := newLedger(principalOf("key_1"))
		r := start(t, newGuard(t, keys, auth.Config{}), "key_1")
		time.Sleep(time.Minute)
		r.stop()
		if got := keys.verifies.Load(); got != 1 {
			t.Errorf("%d verifications, want 1", got)
		}
	})
}

// Keys are deleted and created while requests begin and end. No request may outlive its key.
func TestRunningRequests_AtRandom_EndWithTheirKeys(t *testing.T) {
	const keyCount, rounds = 8, 200
	keys := newLedger()
	a := newGuard(t, keys, auth.Config{})
	entered := make(map[string]chan struct{})
	handler := a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p, _ := auth.PrincipalFrom(r.Context())
		select {
		case entered[p.KeyID] <- struct{}{}:
		default:
		}
		if rand.N(2) == 0 {
			return
		}
		<-r.Context().Done()
		if got := context.Cause(r.Context()); got != auth.ErrKeyDeleted {
			t.Errorf("cause %v, want %v", got, auth.ErrKeyDeleted)
		}
	}))
	for i := range keyCount {
		entered[fmt.Sprint("key_", i)] = make(chan struct{}, 1)
	}
	var group sync.WaitGroup
	for id, entered := range entered {
		stopped := make(chan struct{})
		for range 3 {
			group.Go(func() {
				for {
					select {
					case <-stopped:
						return
					default:
						handler.ServeHTTP(httptest.NewRecorder(), request(id))
					}
				}
			})
		}
		group.Go(func() {
			defer close(stopped)
			for range rounds {
				p := principalOf(id)
				keys.set(id, &p, "")
				<-entered
				keys.set(id, nil, observe.Unknown)
				a.Changed("acct", id)
			}
		})
	}
	group.Wait()
}
