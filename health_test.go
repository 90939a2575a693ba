package storageapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// An ailment is a store that can be made to fail in several ways.
type ailment struct {
	store.Store
	unwritable, silent, stuck, idle, halted, unclaimable, purging atomic.Bool

	over    chan struct{}          // closed to release hanging calls
	telling atomic.Pointer[func()] // if set, called once while an audit entry is added
}

var errDisk = errors.New("dial host=db.internal user=secret-user /var/lib/secret.db: no space left on device")

func (s *ailment) written() error {
	if s.unwritable.Load() {
		return errDisk
	}
	return nil
}

func (s *ailment) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (int, error) {
	if err := s.written(); err != nil {
		return 0, err
	}
	return s.Store.Enqueue(ctx, event)
}

func (s *ailment) AddAuditEntries(ctx context.Context, list []audit.Entry) (int, error) {
	if err := s.written(); err != nil {
		return 0, err
	}
	if telling := s.telling.Swap(nil); telling != nil {
		(*telling)()
	}
	return s.Store.AddAuditEntries(ctx, list)
}

// Purge is slow and never completes while purging is set.
func (s *ailment) Purge(ctx context.Context, purge driver.Purge) (bool, error) {
	if s.purging.Load() {
		time.Sleep(100 * time.Millisecond)
		return true, nil
	}
	return s.Store.Purge(ctx, purge)
}

func (s *ailment) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	if err := s.written(); err != nil {
		return err
	}
	return s.Store.RecordKeyUse(ctx, uses)
}

func (s *ailment) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	switch {
	case s.stuck.Load():
		<-s.over
	case s.idle.Load():
		found := make([]driver.LoadedDelivery, len(refs))
		for i := range found {
			found[i].State = driver.Unread
		}
		return found, nil
	case s.unclaimable.Load():
		return nil, errDisk
	}
	return s.Store.Load(ctx, refs)
}

func (s *ailment) Ping(ctx context.Context) error {
	if s.silent.Load() {
		<-s.over
	}
	return s.Store.Ping(ctx)
}

func (s *ailment) Capabilities() capability.Set {
	return capability.Set{Halted: func() error {
		if s.halted.Load() {
			return errDisk
		}
		return nil
	}}
}

// A patient is a Handler that uses an ailment as its store, in a testing/synctest bubble.
type patient struct {
	*testing.T
	store     *ailment
	api       *storageapi.Handler
	recovered []audit.Entry // received by the host; read only after Run has ended
}

func inHealth(t *testing.T, test func(*patient)) {
	testbubble.Run(t, func(t *testing.T) {
		p := &patient{T: t, store: &ailment{Store: memory.New(), over: make(chan struct{})}}
		notify := func(_ context.Context, n audit.Entry) error {
			if n.Action == audit.StoreRecovered {
				p.recovered = append(p.recovered, n)
			}
			return nil
		}
		var err error
		p.api, err = storageapi.NewHandler(storageapi.Config{Store: p.store, Notify: notify, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		test(p)
		if err := p.api.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (p *patient) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.api.Run(ctx) }()
	synctest.Wait()
	return func() {
		p.Helper()
		cancel()
		if err := <-ended; err != nil {
			p.Errorf("Run: %v", err)
		}
	}
}

func (p *patient) publish() error {
	return p.api.Webhooks.Publish(p.Context(), webhooks.Event{Account: "acct", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
}

// subscribe creates a webhook whose receiver has worked before.
func (p *patient) subscribe() webhooks.Webhook {
	p.Helper()
	w, err := p.api.Webhooks.Create(p.Context(), "acct", webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err == nil {
		_, err = p.store.UpdateWebhook(p.Context(), "acct", w.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
			w.ProvenAt = time.Now()
			return nil
		})
	}
	if err != nil {
		p.Fatal(err)
	}
	return w
}

// probe sends a request to both health handlers with these thresholds and returns the responses.
func (p *patient) probe(t storageapi.HealthThresholds) (ready, live int, body string) {
	p.Helper()
	time.Sleep(time.Second) // so that no cached result is used
	ask := func(h http.Handler) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(p.Context(), http.MethodGet, "/", nil))
		return w
	}
	a, b := ask(p.api.HealthHandler(t)), ask(p.api.LivenessHandler(t))
	if a.Header().Get("Cache-Control") != "no-store" || !strings.HasPrefix(a.Header().Get("Content-Type"), "application/json") {
		p.Errorf("headers %v", a.Header())
	}
	for _, leak := range []string{"secret", "internal", "device", "acct"} {
		if strings.Contains(a.Body.String()+b.Body.String(), leak) {
			p.Errorf("the answer tells of %q: %s", leak, a.Body)
		}
	}
	return a.Code, b.Code, a.Body.String()
}

func (p *patient) want(ready, live bool, problems ...storageapi.HealthProblem) {
	p.Helper()
	p.wantBy(storageapi.HealthThresholds{}, ready, live, problems...)
}

func (p *patient) wantBy(t storageapi.HealthThresholds, ready, live bool, problems ...storageapi.HealthProblem) {
	p.Helper()
	gotReady, gotLive, body := p.probe(t)
	got := storageapi.HealthVerdict{}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		p.Fatal(err)
	}
	want := storageapi.HealthVerdict{Ready: ready, Live: live, Problems: append([]storageapi.HealthProblem{}, problems...)}
	if diff := cmp.Diff(want, got); diff != "" || (gotReady == 200) != ready || (gotLive == 200) != live {
		p.Errorf("%d, %d, (-want +got):\n%s%s", gotReady, gotLive, diff, body)
	}
}

// While Run is not running, the process must be not ready, and after a minute not live. With NoRun
// it must stay ready and live.
func TestHealth_RunNotRunning_IsNotReadyThenNotLive(t *testing.T) {
	inHealth(t, func(p *patient) {
		p.want(false, true, storageapi.ProblemNotRunning)
		p.wantBy(storageapi.HealthThresholds{NoRun: true}, true, true)
		time.Sleep(time.Minute)
		p.want(false, false, storageapi.ProblemNotRunning)
		p.wantBy(storageapi.HealthThresholds{Down: time.Hour}, false, true, storageapi.ProblemNotRunning)
		stop := p.run()
		p.want(true, true)
		time.Sleep(24 * time.Hour)
		p.want(true, true)
		stop()
		p.want(false, true, storageapi.ProblemNotRunning)
		time.Sleep(time.Minute)
		p.want(false, false, storageapi.ProblemNotRunning)
		p.run() // runs until Close
		p.want(true, true)
		if err := p.api.Close(); err != nil {
			p.Fatal(err)
		}
		p.want(false, true, storageapi.ProblemClosed)
		time.Sleep(time.Minute)
		p.want(false, false, storageapi.ProblemClosed)
	})
}

// While the store cannot be written, the process is live but not ready. The failure and the
// recovery must both be detected even without traffic.
func TestHealth_StoreNotWritable_IsNotReadyUntilRecovery(t *testing.T) {
	inHealth(t, func(p *patient) {
		stop := p.run()
		defer stop()
		p.subscribe()
		p.want(true, true)
		p.store.unwritable.Store(true)
		if err := p.publish(); !errors.Is(err, errDisk) {
			p.Fatal(err)
		}
		for range 60 {
			time.Sleep(time.Minute)
			p.want(false, true, storageapi.ProblemUnwritable)
		}
		if h := p.api.Health(p.Context()); !errors.Is(h.WriteError, errDisk) || !errors.Is(h.LastError, errDisk) {
			p.Errorf("%+v", h)
		}
		p.store.unwritable.Store(false)
		time.Sleep(10 * time.Second)
		p.want(true, true)
	})
}

// The recovery of a store must also be detected during maintenance that takes hours.
func TestHealth_RecoveryDuringLongPurge_IsDetected(t *testing.T) {
	inHealth(t, func(p *patient) {
		p.store.purging.Store(true)
		stop := p.run()
		defer stop()
		p.subscribe()
		time.Sleep(time.Minute)
		p.store.unwritable.Store(true)
		if err := p.publish(); !errors.Is(err, errDisk) {
			p.Fatal(err)
		}
		p.want(false, true, storageapi.ProblemUnwritable)
		p.store.unwritable.Store(false)
		time.Sleep(11 * time.Second)
		p.want(true, true)
	})
}

// If the store fails again while its recovery is being recorded, the process stays not ready until
// the next recovery.
func TestHealth_StoreFailsDuringRecovery_StaysNotReady(t *testing.T) {
	inHealth(t, func(p *patient) {
		stop := p.run()
		defer stop()
		fail := func() {
			p.store.unwritable.Store(true)
			if err := p.publish(); !errors.Is(err, errDisk) {
				p.Error(err)
			}
		}
		fail()
		p.store.telling.Store(&fail)
		p.store.unwritable.Store(false)
		for range 10 {
			time.Sleep(30 * time.Second)
			p.want(false, true, storageapi.ProblemUnwritable)
		}
		p.store.unwritable.Store(false)
		time.Sleep(10 * time.Second)
		p.want(true, true)
	})
}

// While claims fail, the store has not recovered, even if other writes succeed. The host must be
// notified of the recovery exactly once.
func TestStoreRecovered_NotifiesOnce(t *testing.T) {
	inHealth(t, func(p *patient) {
		stop := p.run()
		p.store.unclaimable.Store(true)
		p.subscribe()
		if err := p.publish(); err != nil {
			p.Fatal(err)
		}
		began := time.Now()
		for range 30 {
			time.Sleep(time.Minute)
			p.want(false, true, storageapi.ProblemUnwritable)
		}
		ended := time.Now()
		p.store.unclaimable.Store(false)
		time.Sleep(20 * time.Second)
		p.want(true, true)
		time.Sleep(time.Hour)
		stop()
		if len(p.recovered) != 1 || p.recovered[0].Since.Sub(began).Abs() > time.Second || p.recovered[0].Until.Before(ended) || p.recovered[0].Until.Sub(ended) > 30*time.Second {
			p.Errorf("from %v to %v: %+v", began, ended, p.recovered)
		}
	})
}

// A probe must not write to the store, even if deliveries are pending.
func TestHealth_PendingDeliveries_WritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	api, err := storageapi.NewHandler(storageapi.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	_, err = api.Webhooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err == nil {
		err = api.Webhooks.Publish(t.Context(), webhooks.Event{Account: "acct", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
	}
	if err != nil {
		t.Fatal(err)
	}
	before := readFile(t, path)
	for range 1000 {
		w := httptest.NewRecorder()
		api.HealthHandler(storageapi.HealthThresholds{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	}
	if _, err := api.Webhooks.Stats(t.Context()); err != nil { // waits for background work
		t.Fatal(err)
	}
	if readFile(t, path) != before {
		t.Error("the file has changed")
	}
}

// If the last uses of keys cannot be written, the process is not ready.
func TestHealth_LastUsesNotWritable_IsNotReady(t *testing.T) {
	inHealth(t, func(p *patient) {
		stop := p.run()
		defer stop()
		_, token, err := p.api.Keys.Create(p.Context(), "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified()})
		if err != nil {
			p.Fatal(err)
		}
		p.store.unwritable.Store(true)
		if _, err := p.api.Keys.Verify(p.Context(), token.Reveal()); err != nil {
			p.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		p.want(false, true, storageapi.ProblemUnwritable)
		p.store.unwritable.Store(false)
		time.Sleep(2 * time.Minute)
		p.want(true, true)
	})
}

// If the store does not answer, the process is live but not ready.
func TestHealth_StoreHangs_IsNotReadyButLive(t *testing.T) {
	inHealth(t, func(p *patient) {
		stop := p.run()
		defer stop()
		p.want(true, true)
		p.store.silent.Store(true)
		for range 20 {
			time.Sleep(time.Minute)
			p.want(false, true, storageapi.ProblemUnreadable)
		}
		p.store.silent.Store(false)
		close(p.store.over)
		synctest.Wait()
		p.want(true, true)
	})
}

// The process must not be live if a claim hangs, if claims do not return due deliveries, or if the
// store has halted.
func TestHealth_HungOrHaltedStore_IsNotLive(t *testing.T) {
	t.Run("claims hang", func(t *testing.T) {
		inHealth(t, func(p *patient) {
			stop := p.run()
			p.store.stuck.Store(true)
			p.subscribe()
			_ = p.publish()
			p.want(true, true)
			time.Sleep(time.Minute)
			p.want(false, false, storageapi.ProblemStuck)
			p.store.stuck.Store(false)
			close(p.store.over)
			stop()
		})
	})
	t.Run("claims find nothing", func(t *testing.T) {
		inHealth(t, func(p *patient) {
			stop := p.run()
			defer stop()
			time.Sleep(time.Second)
			p.store.idle.Store(true)
			held := p.subscribe()
			if err := p.publish(); err != nil {
				p.Fatal(err)
			}
			_, err := p.store.UpdateWebhook(p.Context(), "acct", held.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
				w.Held = true
				return nil
			})
			if err != nil {
				p.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
			p.want(true, true) // deliveries on hold do not count, however long they are due
			p.subscribe()
			if err := p.publish(); err != nil {
				p.Fatal(err)
			}
			time.Sleep(4 * time.Minute)
			p.want(true, true)
			p.wantBy(storageapi.HealthThresholds{OldestDue: 2 * time.Minute}, false, false, storageapi.ProblemNoProgress)
			time.Sleep(time.Minute)
			p.want(false, false, storageapi.ProblemNoProgress)
		})
	})
	t.Run("halted", func(t *testing.T) {
		inHealth(t, func(p *patient) {
			stop := p.run()
			defer stop()
			p.store.halted.Store(true)
			p.want(false, false, storageapi.ProblemStoreHalted)
		})
	})
}

// Judge must compare each value with its own threshold.
func TestHealthThresholds(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		well := func() storageapi.Health {
			return storageapi.Health{Health: webhooks.Health{Run: webhooks.RunUnderWay, RunSince: ago(time.Hour), LastRound: ago(30 * time.Second), LastAttempt: ago(4 * time.Minute), OldestDue: time.Hour}}
		}
		for name, test := range map[string]struct {
			change     func(*storageapi.Health)
			thresholds storageapi.HealthThresholds
			want       []storageapi.HealthProblem
		}{
			"attempts begin": {func(*storageapi.Health) {}, storageapi.HealthThresholds{Stuck: time.Second}, nil},
			"Run has just begun": {func(h *storageapi.Health) {
				h.RunSince, h.LastRound, h.LastAttempt = ago(time.Second), time.Time{}, time.Time{}
			}, storageapi.HealthThresholds{}, nil},
			"the loop does not go round":               {func(h *storageapi.Health) { h.LastRound = ago(46 * time.Second) }, storageapi.HealthThresholds{Stuck: time.Second}, []storageapi.HealthProblem{storageapi.ProblemStuck}},
			"no attempts begin":                        {func(h *storageapi.Health) { h.LastAttempt = ago(6 * time.Minute) }, storageapi.HealthThresholds{}, []storageapi.HealthProblem{storageapi.ProblemNoProgress}},
			"no attempts begin, since the store fails": {func(h *storageapi.Health) { h.LastAttempt, h.WriteError = ago(6*time.Minute), errDisk }, storageapi.HealthThresholds{}, []storageapi.HealthProblem{storageapi.ProblemUnwritable}},
			"nothing waits":                            {func(h *storageapi.Health) { h.LastAttempt, h.OldestDue = ago(time.Hour), 0 }, storageapi.HealthThresholds{}, nil},
			"draining":                                 {func(h *storageapi.Health) { h.Run = webhooks.RunDraining }, storageapi.HealthThresholds{}, []storageapi.HealthProblem{storageapi.ProblemDraining}},
			"draining an unread one":                   {func(h *storageapi.Health) { h.Run, h.ReadError = webhooks.RunDraining, errDisk }, storageapi.HealthThresholds{}, []storageapi.HealthProblem{storageapi.ProblemDraining, storageapi.ProblemUnreadable}},
			"closed, and draining still":               {func(h *storageapi.Health) { h.Run, h.ClosedAt = webhooks.RunDraining, ago(time.Hour) }, storageapi.HealthThresholds{}, []storageapi.HealthProblem{storageapi.ProblemClosed}},
			"without Run, unwritable":                  {func(h *storageapi.Health) { h.Run, h.WriteError = webhooks.RunNotStarted, errDisk }, storageapi.HealthThresholds{NoRun: true}, []storageapi.HealthProblem{storageapi.ProblemUnwritable}},
		} {
			h := well()
			test.change(&h)
			if diff := cmp.Diff(append([]storageapi.HealthProblem{}, test.want...), test.thresholds.Judge(h).Problems); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		draining := well() // draining stays live, however long it takes
		draining.Run, draining.ClosedAt = webhooks.RunDraining, ago(time.Hour)
		if v := (storageapi.HealthThresholds{}).Judge(draining); !v.Live {
			t.Errorf("draining: %+v", v)
		}
	})
}

// Probes must accept only GET and HEAD.
func TestHealthHandlerMethods(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	for method, want := range map[string]int{http.MethodPost: 405, http.MethodHead: 503} {
		w := httptest.NewRecorder()
		api.HealthHandler(storageapi.HealthThresholds{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
		if w.Code != want || want == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
}
