package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
)

// An account is a simulated customer, with a key that manages its keys, a key that manages its
// webhooks, and a publisher of its events.
type account struct {
	world      *world
	id         string
	admin      string // a key with all scopes that is never deleted
	adminID    string
	clients    *clients
	subscriber *subscriber
	publisher  *publisher
}

func newAccount(w *world, i int) *account {
	a := &account{world: w, id: fmt.Sprint("acct", i)}
	a.clients = &clients{actor: newActor(a, "clients", 10*i+10)}
	a.subscriber = &subscriber{actor: newActor(a, "hooks", 10*i+11)}
	a.publisher = &publisher{actor: newActor(a, "publisher", 10*i+12)}
	return a
}

// An actor performs operations one after the other.
type actor struct {
	account *account
	world   *world
	name    string
	rand    *rand.Rand
}

func newActor(a *account, name string, stream int) *actor {
	return &actor{a, a.world, name + "/" + a.id[4:], rand.New(rand.NewPCG(a.world.seed, uint64(stream)))}
}

func (a *actor) tell(about []string, format string, args ...any) {
	a.world.tell(a.name, append(about, a.account.id), format, args...)
}

// paced calls do about n·share times during the era, in bursts with long pauses in between.
func (a *actor) paced(n int, share float64, do func()) {
	n = int(float64(n)*share) + 1
	pauses := make([]time.Duration, n)
	var total time.Duration
	for i := range pauses {
		pauses[i] = span(a.rand, time.Millisecond, 3*time.Hour)
		total += pauses[i]
	}
	left := (a.world.era.to - a.world.now()) * 9 / 10
	for _, pause := range pauses {
		time.Sleep(time.Duration(float64(pause) * min(1, float64(left)/float64(total))))
		if a.world.broken() || a.world.now() > a.world.era.to {
			return
		}
		a.world.ops.Add(1)
		do()
	}
}

// An outcome is a caller's knowledge of the effect of its call.
type outcome int

const (
	done    outcome = iota // acknowledged
	refused                // rejected, without an effect
	unknown                // without an answer, so the effect is not known
)

func (o outcome) String() string { return [...]string{"done", "refused", "unknown"}[o] }

// context returns a context for a call. The context ends after 30 s, at a random earlier time, or
// when it is checked for the n-th time. looks is n, or -1 in the other cases.
func (a *actor) context(parent context.Context) (ctx context.Context, end func(), looks int) {
	ctx, cancel := context.WithTimeout(parent, 30*time.Second)
	switch a.rand.IntN(6) {
	case 0, 1:
		looks = a.rand.IntN(8)
		dying, end := newDying(ctx, looks)
		return dying, func() { end(); cancel() }, looks
	case 2:
		timed, end := context.WithTimeout(ctx, span(a.rand, time.Millisecond, 10*time.Second))
		return timed, func() { end(); cancel() }, -1
	}
	return ctx, cancel, -1
}

// beset may inject a fault into a call: a fault of the given store methods, or of the disk. undo
// removes the fault.
func (a *actor) beset(methods ...string) (undo func()) {
	w := a.world
	switch {
	case w.disk != nil && a.rand.IntN(3) == 0:
		if !w.disk.fail(full, func() { w.tally.add("commit", full) }) {
			break
		}
		w.trouble(w.now() + 30*time.Second)
		a.tell(nil, "finds the disk full")
		return w.disk.mend
	case a.rand.IntN(4) == 0:
		method, what := pick(a.rand, methods...), pick(a.rand, before, after, hang, stall)
		w.faults.arm(method, what)
		return func() { w.faults.disarm(method) }
	}
	return func() {}
}

// request sends a request to the API and returns the status and the body of the response, or a
// status of 0 if there was no response.
func (a *actor) request(ctx context.Context, token, method, path string, body io.Reader, header ...string) (status int, answer []byte) {
	r, err := http.NewRequestWithContext(ctx, method, "http://api.example.com"+path, body)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Api-Key", token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h, name := a.world.reach(), fmt.Sprint(a.world.requests.Add(1))
	r.Header.Set(requestHeader, name)
	response, err := h.client.Do(r)
	if err != nil {
		h.await(name)
		return 0, nil
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		h.await(name)
		return 0, nil
	}
	return response.StatusCode, answer
}

// send calls request with a random fault. A 2xx response that cannot be read counts as no
// response.
func (a *actor) send(ctx context.Context, token, method, path string, body any, header ...string) (outcome, int, map[string]any) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch a.rand.IntN(8) {
	case 0, 1:
		header = append(header, looksHeader, fmt.Sprint(a.rand.IntN(16)))
	case 2:
		var end func()
		ctx, end = context.WithTimeout(ctx, span(a.rand, time.Millisecond, 10*time.Second))
		defer end()
	}
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		reader = bytes.NewReader(text)
	}
	status, answer := a.request(ctx, token, method, path, reader, header...)
	var fields map[string]any
	_ = json.Unmarshal(answer, &fields)
	switch {
	case status >= 200 && status <= 299:
		return done, status, fields
	case status >= 400 && status <= 499:
		return refused, status, fields
	}
	return unknown, status, fields
}

// outcomeOf returns the outcome of a call with error err. isRefusal means that err guarantees
// that the call had no effect.
func outcomeOf(err error, isRefusal bool) outcome {
	switch {
	case err == nil:
		return done
	case isRefusal:
		return refused
	}
	return unknown
}

// begin makes sure that the account has its first key.
func (a *account) begin(ctx context.Context) {
	for a.admin == "" {
		key, token, err := a.world.reach().api.Keys.Create(ctx, a.id, apikeys.CreateParams{Name: "admin", Scopes: scopes.Specified()})
		if err == nil {
			a.admin, a.adminID = token.Reveal(), key.ID
			a.world.truth(func(ctx context.Context, s store.Store) {
				if _, err := s.KeyByID(ctx, a.id, key.ID); err != nil {
					a.world.breach("acknowledged is done", []string{a.id}, "the first key: %v", err)
				}
			})
			return
		}
		time.Sleep(time.Second)
	}
}
