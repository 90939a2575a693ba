package simulation_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/storageapi/storageapi/internal/pipenet"
	"github.com/storageapi/storageapi/signing"
)

// A mood is the way in which a receiver handles requests.
type mood string

const (
	well    mood = "well"    // 200
	slow    mood = "slow"    // 200 after three seconds
	failing mood = "failing" // 500
	asking  mood = "asking"  // 503 with Retry-After
	hanging mood = "hanging" // no response
	refuses mood = "refuses" // no connection
	leaves  mood = "leaves"  // 410
)

// receivers holds all receivers, by the host of their URLs.
type receivers struct {
	world *world
	mu    sync.Mutex
	hosts map[string]*receiver

	rotating map[string]bool // webhooks whose secret is being rotated, so that the signing secrets are not known

	inFlight map[string]map[*request]bool // by the subject of a limit
	starved  time.Duration                // the host has no descriptors until then
	listener *pipenet.Listener
	server   *http.Server
}

// A receiver is the receiver of one host name.
type receiver struct {
	host    string
	account string
	mood    mood
	since   time.Duration // start of the mood
	secrets []secret
	events  map[string]received // accepted events, by ID
	last    time.Duration       // arrival of the last request
}

// A secret is a signing secret with the end of its validity.
type secret struct {
	text  string
	until time.Duration // 0 means unlimited
}

// received is an event that a receiver has accepted.
type received struct {
	kind   string
	period string
	files  []string
}

type request struct{ host, event string }

func newReceivers(w *world) *receivers {
	return &receivers{world: w, hosts: make(map[string]*receiver), rotating: make(map[string]bool), inFlight: make(map[string]map[*request]bool)}
}

// open starts serving all receivers in the current bubble.
func (r *receivers) open() {
	r.listener = pipenet.Listen()
	r.inFlight = make(map[string]map[*request]bool)
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ErrorLog: log.New(io.Discard, "", 0)}
	go r.server.Serve(r.listener)
}

func (r *receivers) close() { _ = r.server.Close() }

func (r *receivers) add(host, account string, mood mood) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[host] == nil {
		r.hosts[host] = &receiver{host: host, account: account, mood: mood, events: make(map[string]received)}
	}
}

// moves adds a receiver for another host of a webhook. The receiver shares the webhook's secrets.
func (r *receivers) moves(webhook, host, account string, mood mood) {
	r.add(host, account, mood)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.hosts {
		if one.host != host && webhookOf(one.host) == webhook {
			r.hosts[host].secrets = append(r.hosts[host].secrets, one.secrets...)
			return
		}
	}
}

// setMood changes the mood of a receiver.
func (r *receivers) setMood(host string, mood mood) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.hosts[host]; one != nil && one.mood != mood {
		one.mood, one.since = mood, r.world.now()
		r.world.tell("receiver", []string{webhookOf(host)}, "%s is %s from now on", host, mood)
	}
}

func (r *receivers) moodOf(host string) (mood, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.hosts[host]; one != nil {
		return one.mood, one.since
	}
	return refuses, 0
}

// lastOf returns when the last request to a host arrived.
func (r *receivers) lastOf(host string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.hosts[host]; one != nil {
		return one.last
	}
	return 0
}

// rotates records whether the secrets of a webhook are being rotated.
func (r *receivers) rotates(webhook string, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotating[webhook] = now
}

// signs records that a webhook signs with a new secret, and also with the previous one until the
// grace period ends.
func (r *receivers) signs(webhook, text string, grace time.Duration) {
	now := r.world.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.hosts {
		if webhookOf(one.host) != webhook {
			continue
		}
		for i := range one.secrets {
			if s := &one.secrets[i]; s.until == 0 || s.until > now+grace {
				s.until = now + grace
			}
		}
		one.secrets = append(one.secrets, secret{text: text})
	}
}

// lookUp resolves a name immediately, unless its name servers are dead.
func (r *receivers) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	if isDeadName(name) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(5 * time.Millisecond)
	return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
}

// dial returns the function with which the dispatcher of a process connects to receivers.
func (r *receivers) dial(link *uplink) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		name, _, _ := net.SplitHostPort(address)
		host := hostOf("https://" + name)
		r.mu.Lock()
		starved := r.world.now() < r.starved
		r.mu.Unlock()
		fails := func(errno syscall.Errno) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errno}
		}
		if starved {
			r.world.tally.add("dial", "starved")
			r.world.ledger.failsBy(host, true)
			return fails(syscall.EMFILE)
		}
		if mood, _ := r.moodOf(host); mood == refuses {
			r.world.tally.add("dial", "refused")
			r.world.ledger.failsBy(host, false)
			return fails(syscall.ECONNREFUSED)
		}
		conn, err := r.listener.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return link.add(conn), nil
	}
}

// serve handles one request.
func (r *receivers) serve(rw http.ResponseWriter, req *http.Request) {
	w := r.world
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	host, event := hostOf("https://"+req.Host), req.Header.Get("Webhook-Id")
	var content struct {
		Type string
		Data struct {
			Period string
			Files  []struct{ ID string }
		}
	}
	if err := json.Unmarshal(body, &content); err != nil {
		w.breach("what is sent is an event", []string{host}, "%s gets %q", host, body)
		return
	}
	r.mu.Lock()
	one := r.hosts[host]
	if one != nil {
		one.last = w.now()
	}
	r.mu.Unlock()
	if one == nil {
		w.breach("only receivers are sent to", nil, "a request for %q", req.Host)
		return
	}
	about := []string{webhookOf(host), event}
	if deleted, ok := w.deleted(webhookOf(host)); ok && w.now() > deleted {
		w.breach("nothing is sent after a deletion", about, "%s gets %s, but was deleted at %s", host, event, clock(deleted))
	}
	r.verify(one, req.Header, body, about)
	isTest := content.Type == "webhook.test"
	for _, a := range w.accounts {
		if a.id == one.account {
			a.subscriber.receives(webhookOf(host), event, isTest, req.Header.Get(tokenHeader))
		}
	}
	var le *load
	if !isTest {
		if le = w.ledger.arrives(host, event); le == nil {
			w.breach("what is sent is loaded", about, "%s gets %s, which is not loaded for it", host, event)
		} else {
			w.arrivesInTime(le, host, about)
		}
		defer r.count(one, event)()
	}
	mood, _ := r.moodOf(host)
	w.tell("receiver", about, "%s gets %s (%s) and is %s", host, event, content.Type, mood)
	answer := func(status int, asked time.Duration) {
		if req.Context().Err() != nil {
			return
		}
		if !isTest {
			w.ledger.answers(host, event, le, status, asked)
		}
		if status == http.StatusOK && !isTest {
			got := received{kind: content.Type, period: content.Data.Period}
			for _, f := range content.Data.Files {
				got.files = append(got.files, f.ID)
			}
			r.mu.Lock()
			one.events[event] = got
			r.mu.Unlock()
		}
		rw.WriteHeader(status)
	}
	switch mood {
	case well:
		answer(http.StatusOK, 0)
	case slow:
		select {
		case <-time.After(3 * time.Second):
			answer(http.StatusOK, 0)
		case <-req.Context().Done():
		}
	case failing:
		answer(http.StatusInternalServerError, 0)
	case asking:
		rw.Header().Set("Retry-After", "600")
		answer(http.StatusServiceUnavailable, 10*time.Minute)
	case leaves:
		answer(http.StatusGone, 0)
	case hanging, refuses:
		<-req.Context().Done()
	}
}

// verify checks that a valid secret signed the request.
func (r *receivers) verify(one *receiver, header http.Header, body []byte, about []string) {
	now := r.world.now()
	r.mu.Lock()
	var live []signing.Secret
	for _, s := range one.secrets {
		if s.until == 0 || now <= s.until+15*time.Second { // an attempt may take 15 s
			if parsed, err := signing.ParseSecret(s.text); err == nil {
				live = append(live, parsed)
			}
		}
	}
	rotating := r.rotating[webhookOf(one.host)]
	r.mu.Unlock()
	if len(live) == 0 || rotating {
		return // the secret is not known yet
	}
	live = live[max(0, len(live)-16):]
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: live, Now: r.world.wallNow})
	if err == nil {
		err = verifier.Verify(header, body)
	}
	if err != nil {
		r.world.breach("live secrets sign", about, "%s: %v", one.host, err)
	}
}

// count counts a request as in progress until over is called, and checks the limits on concurrent
// requests.
func (r *receivers) count(one *receiver, event string) (over func()) {
	config := &r.world.plan.config
	this := &request{one.host, event}
	caps := []struct {
		what string
		most int
	}{
		{"webhook " + webhookOf(one.host), r.world.perWebhook}, {"account " + one.account, r.world.perAccount}, {"all", config.Concurrency.Total},
		{"delivery of " + event + " to " + one.host, 1},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range caps {
		flights := r.inFlight[c.what]
		if flights == nil {
			flights = make(map[*request]bool)
			r.inFlight[c.what] = flights
		}
		if flights[this] = true; len(flights) > c.most {
			// Finished requests may still be counted at this instant, so check again later.
			r.world.behind.Go(func() { r.recount(c.what, c.most) })
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range caps {
			delete(r.inFlight[c.what], this)
		}
	}
}

func (r *receivers) recount(what string, most int) {
	time.Sleep(time.Microsecond)
	r.mu.Lock()
	n := len(r.inFlight[what])
	r.mu.Unlock()
	if n > most {
		r.world.breach("caps are kept", nil, "%d requests at a time to %s, where %d may be", n, what, most)
	}
}

// starve leaves the host without descriptors until the given time.
func (r *receivers) starve(until time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starved = until
}

// taken returns the events that the receivers of a webhook have accepted.
func (r *receivers) taken(webhook string) map[string]received {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]received)
	for _, one := range r.hosts {
		if webhookOf(one.host) == webhook {
			maps.Copy(all, one.events)
		}
	}
	return all
}
