package simulation_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/pipenet"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// A host is a simulated process that serves the API and delivers from the store.
type host struct {
	world    *world
	api      *storageapi.Handler
	stream   http.Handler // for streamPath
	store    *faulty
	link     *uplink
	listener *pipenet.Listener
	server   *http.Server
	client   *http.Client // to its API
	ended    chan struct{}

	mu       sync.Mutex
	requests map[string]progress
}

// A progress is the progress of a request at the host.
type progress int

const (
	open progress = iota + 1
	over
)

func (h *host) opens(request string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requests[request] == over {
		return false
	}
	h.requests[request] = open
	return true
}

func (h *host) closes(request string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests[request] = over
}

// await returns once a request is over or can no longer begin.
func (h *host) await(request string) {
	for {
		time.Sleep(time.Millisecond) // a request that was sent arrives meanwhile
		h.mu.Lock()
		if h.requests[request] != open {
			h.requests[request] = over
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
	}
}

// looksHeader holds the number of checks after which the host ends a request's context.
const looksHeader = "Sim-Looks"

// start starts a process on the store.
func (w *world) start() {
	w.mu.Lock()
	closed := w.kept == nil
	w.mu.Unlock()
	if closed {
		w.openStore()
	}
	w.mu.Lock()
	w.process++
	w.mu.Unlock()
	h := &host{world: w, link: &uplink{}, listener: pipenet.Listen(), ended: make(chan struct{}), requests: make(map[string]progress)}
	h.store = &faulty{
		Store: w.kept, noisy: storetest.Noisy(w.kept.(driver.Deliveries), w.seed+uint64(w.process)<<32), world: w, process: w.process, died: make(chan struct{}),
	}
	config := w.plan.config
	config.Now = w.wallNow
	api, err := storageapi.NewHandler(storageapi.Config{
		Store: h.store, Keys: apikeys.Config{Now: w.wallNow, MaxPerAccount: -1}, Webhooks: config,
		Alerts: alerts.Config{DefaultBalanceThreshold: 10, Files: noFiles}, // files are reported directly; a scan would store its progress
		Logger: slog.New(slog.DiscardHandler), Notify: h.notify,
		ClientAddress: func(r *http.Request) string { return cmp.Or(r.Header.Get(addressHeader), inNarrow) },
	})
	if err != nil {
		panic(err)
	}
	h.api, h.stream = api, api.Auth.Handler(http.HandlerFunc(stream), auth.AnyResource())
	testhook.SetNetwork(api.Webhooks, testhook.Network{Dial: w.receivers.dial(h.link), Resolve: w.receivers.lookUp})
	go func() {
		defer close(h.ended)
		// A host may be closed before the goroutine calls Run.
		if err := api.Run(context.Background()); err != nil && !errors.Is(err, storageapi.ErrClosed) {
			w.breach("Run ends well", nil, "Run: %v", err)
		}
	}()
	h.server = &http.Server{Handler: http.HandlerFunc(h.serve), ErrorLog: log.New(io.Discard, "", 0)}
	go h.server.Serve(h.listener)
	h.client = &http.Client{Transport: &http.Transport{DialContext: h.listener.Dial, DisableKeepAlives: true}}
	w.mu.Lock()
	w.host, w.up = h, w.now()
	w.mu.Unlock()
	w.tell("host", nil, "process %d is up", w.process)
}

// requestHeader holds a unique name of a request.
const requestHeader = "Sim-Request"

// serve gives a request the context that its headers specify, and records when the request is over.
// A client that gives up waits for this before it checks the outcome.
func (h *host) serve(rw http.ResponseWriter, r *http.Request) {
	if name := r.Header.Get(requestHeader); name != "" {
		if !h.opens(name) {
			return // its client has given up and checked the outcome
		}
		defer h.closes(name)
	}
	if looks, err := strconv.Atoi(r.Header.Get(looksHeader)); err == nil {
		ctx, end := newDying(r.Context(), looks)
		defer end()
		r = r.WithContext(ctx)
	}
	if r.URL.Path == streamPath {
		h.stream.ServeHTTP(rw, r)
		return
	}
	h.api.ServeHTTP(rw, r)
}

// stop ends the process.
func (w *world) stop(how string) {
	w.mu.Lock()
	h := w.host
	w.host = nil
	w.mu.Unlock()
	w.tell("host", nil, "process %d ends: %s", w.process, how)
	switch how {
	case strikeKill: // from now on its calls have no effect
		h.store.kill()
		h.link.cut()
		h.end(false)
		w.closeStore()
	case strikeHasty: // the store is closed while the process uses it
		if w.path != "" {
			w.closeStore()
		}
		h.end(false)
		h.store.kill()
	default:
		h.end(true)
		h.store.kill()
		w.closeStore()
	}
	h.link.cut()
}

// end stops serving and delivering, and checks that both end in time.
func (h *host) end(gently bool) {
	if gently {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = h.server.Shutdown(ctx)
	}
	_ = h.server.Close()
	began := h.world.now()
	_ = h.api.Close()
	<-h.ended
	if took := h.world.now() - began; took > time.Minute {
		h.world.breach("a process ends", nil, "Close took %v", took)
	}
}

// restart ends the process and starts another.
func (w *world) restart(how string) {
	w.stop(how)
	time.Sleep(time.Second)
	w.start()
}

// reach waits until a process runs, and returns it.
func (w *world) reach() *host {
	for {
		w.mu.Lock()
		h := w.host
		w.mu.Unlock()
		if h != nil {
			return h
		}
		time.Sleep(100 * time.Millisecond)
	}
}
