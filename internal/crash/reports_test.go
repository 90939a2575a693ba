//go:build unix

package crash_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// TestKillReports kills hosts while they receive reports, at random moments and around the store
// calls of alerts. Each alert must be published as exactly one event, regardless of kills and
// repeated reports.
func TestKillReports(t *testing.T) {
	t.Parallel()
	hosts := *kills / 3
	if testing.Short() {
		hosts /= 10
	}
	book := newToldBook(t)
	config := hostConfig{Path: filepath.Join(t.TempDir(), "storage.db"), Authority: book.authority}
	reporters := []*reporter{balances(), uses(), files(), watchers(book.url)}

	first := start(t, config)
	<-first.ready
	for _, account := range []string{"balance", "use", "files"} {
		first.want("POST", watch(book.url, account, 0), "", "", http.StatusNoContent)
	}
	first.want("POST", "/balance/watched/5", "", "", http.StatusNoContent)
	first.end()
	<-first.dead

	calls := maps.Clone(reportChanges)
	calls["CreateWebhook"] = 10
	methods := slices.Sorted(maps.Keys(calls))
	planned, reached := make(map[string]int), make(map[string]int)
	for i := range hosts {
		plan, delay := "at random", rand.N(40*time.Millisecond)
		config.Point = point{}
		if i%2 == 0 {
			method := methods[i/4%len(methods)]
			config.Point = point{method, i/2%2 == 1, 1 + rand.IntN(calls[method])}
			plan, delay = config.Point.String(), patience
		}
		p := start(t, config)
		var clients sync.WaitGroup
		clients.Go(func() {
			<-p.ready
			for _, r := range reporters {
				clients.Go(func() { r.report(p, nil) })
			}
			if p.rest(delay); delay < patience || !p.alive() {
				reached[plan]++
			}
			p.kill()
		})
		<-p.dead
		clients.Wait()
		planned[plan]++
		if t.Failed() {
			t.FailNow()
		}
	}

	config.Point = point{}
	last := start(t, config)
	<-last.ready
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for _, r := range reporters {
		clients.Go(func() { r.report(last, stop) })
	}
	last.rest(100 * time.Millisecond)
	close(stop)
	clients.Wait()
	for until := time.Now().Add(20 * time.Second); ; last.rest(10 * time.Millisecond) {
		if r, ok := last.want("GET", "/delivered", "", "", http.StatusNoContent, http.StatusConflict); !ok || r.status == http.StatusNoContent {
			break
		}
		if time.Now().After(until) {
			t.Fatal("events are still owed")
		}
	}
	last.end()
	<-last.dead

	want, maybe := make(map[string]bool), make(map[string]bool)
	for _, r := range reporters {
		for n := range r.n {
			for _, alert := range r.tells(n) {
				want[alert], maybe[alert] = !r.skipped[n], r.skipped[n]
			}
		}
		t.Logf("%s: %d times", r.name, r.n)
	}
	for _, path := range watched(t, config.Path) { // includes webhooks whose creation was not answered
		want[path+" balance.low "+alerts.Amount(5).String()] = true
	}
	for plan, n := range planned {
		t.Logf("%3d of %d killed %s", reached[plan], n, plan)
		if reached[plan] == 0 && n > 1 {
			t.Errorf("no host was killed %s", plan)
		}
	}
	lost, repeated := book.compare(t, want, maybe)
	t.Logf("%d hosts killed, %d alerts, lost=%d, repeated=%d", hosts, len(want), lost, repeated)
}

// watched returns the paths of the existing webhooks.
func watched(t *testing.T, file string) (paths []string) {
	s, err := bolt.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	list, err := s.ListWebhooks(t.Context(), "watched", driver.ListQuery{Limit: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		u, err := url.Parse(w.URL)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, u.Path)
	}
	return paths
}

// A reporter sends reports about one account to each host in turn.
type reporter struct {
	name  string
	steps func(n int) []string // the requests of the n-th report
	tells func(n int) []string // the alerts that the n-th report must cause

	// once means that requests must not be repeated, even unanswered ones. Otherwise each request
	// is repeated until it is answered, and is sent twice concurrently.
	once    bool
	skipped map[int]bool // unanswered reports that were not repeated

	n    int // number of complete reports
	done int // number of acknowledged requests of the next report
}

// report reports until the host is dead, or until stop is closed and a report is complete.
func (r *reporter) report(p *process, stop <-chan struct{}) {
	for {
		for _, step := range r.steps(r.n)[r.done:] {
			if !r.request(p, step) {
				return
			}
			r.done++
		}
		r.n, r.done = r.n+1, 0
		select {
		case <-stop:
			return
		default:
		}
	}
}

// request sends a request, and reports whether it was acknowledged.
func (r *reporter) request(p *process, step string) bool {
	do := func() bool {
		_, ok := p.want("POST", step, "", "", http.StatusNoContent)
		return ok
	}
	if !r.once {
		other := make(chan bool)
		go func() { other <- do() }()
		ok := do()
		return <-other && ok
	}
	if do() {
		return true
	}
	r.skipped[r.n] = true
	r.n++
	return false
}

const threshold = 1_000_000_000_000

func watch(receiver, account string, n int) string {
	return fmt.Sprintf("/watch/%s/%d?url=%s", account, threshold, url.QueryEscape(fmt.Sprintf("%s/%s/%d", receiver, account, n)))
}

// balances returns a reporter of a balance that falls and rises, with a different value each time.
func balances() *reporter {
	return &reporter{
		name: "balances",
		steps: func(n int) []string {
			return []string{
				fmt.Sprintf("/balance/balance/%d", 2*threshold), fmt.Sprintf("/balance/balance/%d", threshold+n),
				fmt.Sprintf("/balance/balance/%d", 1000+n), fmt.Sprintf("/balance/balance/%d", 999+n),
			}
		},
		tells: func(n int) []string {
			return []string{fmt.Sprintf("/balance/0 balance.low %v", alerts.Amount(1000+n))}
		},
	}
}

// uses returns a reporter of a use that reaches its limit in each period, sometimes in one step.
func uses() *reporter {
	return &reporter{
		name: "uses",
		steps: func(n int) []string {
			var steps []string
			for _, used := range []int{1, 8 + n%3, 10} {
				steps = append(steps, fmt.Sprintf("/bandwidth/use/%d/10/%09d", used, n))
			}
			return append(steps, fmt.Sprintf("/bandwidth/use/10/10/%09d", max(0, n-1)))
		},
		tells: func(n int) []string {
			return []string{fmt.Sprintf("/use/0 bandwidth.limit_approaching %09d", n), fmt.Sprintf("/use/0 bandwidth.limit_reached %09d", n)}
		},
	}
}

// files returns a reporter of files, which reports new files each time and repeats some old ones.
func files() *reporter {
	const batch, again = 130, 20
	expires := time.Now().Add(12 * time.Hour).Unix()
	return &reporter{
		name: "files",
		steps: func(n int) []string {
			return []string{fmt.Sprintf("/files/files/%d/%d/%d", 1000+n*batch, batch, expires), fmt.Sprintf("/files/files/%d/%d/%d", 1000+(n+1)*batch-again, again, expires)}
		},
		tells: func(n int) (alerts []string) {
			for i := range batch {
				alerts = append(alerts, fmt.Sprintf("/files/0 files.expiring %d", 1000+n*batch+i))
			}
			return alerts
		},
	}
}

// watchers returns a reporter that creates webhooks whose threshold is above the balance.
func watchers(receiver string) *reporter {
	return &reporter{
		name: "watchers", once: true, skipped: make(map[int]bool),
		steps: func(n int) []string { return []string{watch(receiver, "watched", n)} },
		tells: func(n int) []string {
			return []string{fmt.Sprintf("/watched/%d balance.low %v", n, alerts.Amount(5))}
		},
	}
}

// A toldBook is the HTTPS server of the reporters' webhooks. It records the events of each alert.
type toldBook struct {
	url       string
	authority []byte // DER

	mu     sync.Mutex
	events map[string]map[string]bool // event IDs by alert, such as "/use/0 bandwidth.limit_reached 000000001"
}

func newToldBook(t *testing.T) *toldBook {
	certificate := newCertificate(t)
	b := &toldBook{authority: certificate.Certificate[0], events: make(map[string]map[string]bool)}
	server := httptest.NewUnstartedServer(b)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// ServeHTTP records the alert of an event.
func (b *toldBook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var body struct {
		ID, Type string
		Data     struct {
			Balance, Period string
			Files           []struct{ ID string }
		}
	}
	if err != nil || json.Unmarshal(text, &body) != nil || body.ID != r.Header.Get(signing.HeaderID) {
		return // incomplete request
	}
	about := []string{body.Data.Balance + body.Data.Period}
	if files := body.Data.Files; len(files) > 0 {
		about = nil
		for _, f := range files {
			about = append(about, f.ID)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, what := range about {
		alert := fmt.Sprintf("%s %s %s", r.URL.Path, body.Type, what)
		if b.events[alert] == nil {
			b.events[alert] = make(map[string]bool)
		}
		b.events[alert][body.ID] = true
	}
	w.WriteHeader(http.StatusNoContent)
}

// compare reports each wanted alert that was not published as lost, and each alert with more than
// one event as repeated. It also fails the test for alerts that are neither in want nor in maybe.
func (b *toldBook) compare(t *testing.T, want, maybe map[string]bool) (lost, repeated int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for alert, wanted := range want {
		if wanted && b.events[alert] == nil {
			lost++
			t.Errorf("lost: %s", alert)
		}
	}
	for alert, ids := range b.events {
		if len(ids) > 1 {
			repeated++
			t.Errorf("told by %d events: %s", len(ids), alert)
		}
		if !want[alert] && !maybe[alert] {
			t.Errorf("told without a reason: %s", alert)
		}
	}
	return lost, repeated
}
