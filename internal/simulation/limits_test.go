package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// limits are the scopes and limits of a key. This file implements the rules independently of the
// library, so that it does not repeat the library's faults.
type limits struct {
	scopes    scopes.Set
	resources []string  // nil means no limit
	networks  string    // empty means no limit
	rate      uint64    // requests per minute; 0 means no limit
	expires   time.Time // zero means never
}

// The networks that keys are limited to, and the client addresses.
const (
	wide, narrow         = "192.0.2.0/24", "192.0.2.128/25"
	inNarrow             = "192.0.2.200"
	inWide               = "192.0.2.7"
	outside              = "198.51.100.7"
	addressHeader        = "Sim-Address" // the client's address; inNarrow if missing
	slowRate      uint64 = 6
)

// eventResources are the resources of events; empty means none.
var eventResources = []string{"", "b1", "b2"}

var someResources = [][]string{nil, nil, {"b1"}, {"b2"}, {"b1", "b2"}}

// allows reports whether a list of resources, in which nil means no limit, allows a resource.
func allows(resources []string, resource string) bool {
	return resources == nil || slices.Contains(resources, resource)
}

// within reports whether of allows every resource that resources allows; nil allows all.
func within(resources, of []string) bool {
	return of == nil || resources != nil && !slices.ContainsFunc(resources, func(r string) bool { return !slices.Contains(of, r) })
}

func newLimits(r *rand.Rand, now time.Time) limits {
	l := limits{
		scopes:    pick(r, scopes.Specified(), scopes.Specified(), scopes.Of(scopes.AccountRead, scopes.FilesRead)),
		resources: pick(r, someResources...), networks: pick(r, "", "", wide, narrow), rate: pick(r, 0, 0, slowRate, 600),
	}
	if r.IntN(3) == 0 {
		l.expires = now.Add(span(r, 10*time.Minute, 20*time.Hour)).Truncate(time.Millisecond)
	}
	return l
}

// body returns the body of a request that creates a key.
func (l *limits) body(name string) map[string]any {
	body := map[string]any{"name": name, "scopes": l.scopes.Names(), "labels": map[string]string{"name": name}}
	if l.resources != nil {
		body["resources"] = l.resources
	}
	if l.networks != "" {
		body["allowedNetworks"] = []string{l.networks}
	}
	if l.rate > 0 {
		body["rateLimit"] = l.rate
	}
	if !l.expires.IsZero() {
		body["expiresAt"] = l.expires.Format(time.RFC3339Nano)
	}
	return body
}

// are reports whether a stored key has the limits.
func (l *limits) are(k *apikeys.Key) bool {
	return k.Scopes == l.scopes && slices.Equal(k.Resources.Names(), l.resources) && string(k.AllowedNetworks) == l.networks && k.RateLimit == l.rate && k.ExpiresAt.Equal(l.expires)
}

// covers reports whether a key with the limits l may manage a key with the given limits.
func (l *limits) covers(of *limits) bool {
	for _, name := range of.scopes.Names() {
		if !slices.Contains(l.scopes.Names(), name) {
			return false
		}
	}
	networks := l.networks == "" || of.networks == l.networks || l.networks == wide && of.networks == narrow
	rate := l.rate == 0 || of.rate > 0 && of.rate <= l.rate
	expires := l.expires.IsZero() || !of.expires.IsZero() && !of.expires.After(l.expires)
	return networks && rate && expires && within(of.resources, l.resources)
}

func (l *limits) admits(address string) bool {
	return l.networks == "" || address == inNarrow || l.networks == wide && address == inWide
}

// state returns whether a request with a value of the key must find the key alive, and whether it
// must find it dead. Both are false if that is uncertain. began and ended are the service's time
// before and after the request.
func (k *key) state(value, address string, began, ended time.Time) (alive, dead bool) {
	steady := !ended.Before(began) && ended.Sub(began) < 10*time.Minute // no clock was set
	replaced, never := value == k.previous, k.expires.IsZero()
	gone := k.deleted || k.disabled || !k.admits(address)
	dead = gone || steady && (!never && !began.Before(k.expires) || replaced && began.After(k.until))
	alive = !gone && (never || steady && ended.Before(k.expires)) && (!replaced || steady && ended.Before(k.until.Add(-time.Minute)))
	return alive, dead
}

// A caller makes a request: the account's first key, or a key of clients.
type caller struct {
	*key    // nil means the account's first key
	token   string
	address string
	began   time.Time
}

// caller returns the account's first key or, less often, any key, which may be dead or used from a
// wrong address.
func (c *clients) caller() *caller {
	by := &caller{token: c.account.admin, address: inNarrow, began: c.world.wallNow()}
	if c.rand.IntN(3) > 0 {
		return by
	}
	if k := c.keys; len(k) > 0 {
		if one := k[c.rand.IntN(len(k))]; one.token != "" {
			by.key, by.token, by.address = one, one.token, c.address()
		}
	}
	return by
}

func (c *clients) address() string { return pick(c.rand, inNarrow, inNarrow, inWide, outside) }

func (by *caller) String() string {
	if by.key == nil {
		return "the first key"
	}
	return fmt.Sprintf("%s at %s", by.name, by.address)
}

func (by *caller) about(about ...string) []string {
	if by.key != nil {
		about = append(about, by.name)
	}
	return about
}

// judge checks the effect of a call that requires authority over keys with certain limits.
func (by *caller) judge(c *clients, what string, about []string, result outcome, status int, effect bool, over ...*limits) {
	alive, dead := true, false
	covers := true
	if by.key != nil {
		alive, dead = by.state(by.token, by.address, by.began, c.world.wallNow())
		covers = !slices.ContainsFunc(over, func(l *limits) bool { return !by.covers(l) })
	}
	about = by.about(about...)
	switch {
	case dead && (effect || result == done):
		c.world.breach("a dead key does nothing", about, "%s with %s: status %d, effect %v", what, by, status, effect)
	case !covers && (effect || result == done):
		c.world.breach("no key exceeds its limits", about, "%s with %s: status %d, effect %v", what, by, status, effect)
	case status == http.StatusTooManyRequests && (by.key == nil || by.rate == 0):
		c.world.breach("only slow keys are held back", about, "%s with %s: status %d", what, by, status)
	case alive && covers && (status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound):
		c.world.breach("a live key may do what it covers", about, "%s with %s: status %d", what, by, status)
	}
}

// send is like [actor.send], for a request of the caller.
func (by *caller) send(ctx context.Context, c *clients, method, path string, body any, header ...string) (outcome, int, map[string]any) {
	return c.send(ctx, by.token, method, path, body, append(header, addressHeader, by.address)...)
}

// moveExpiry makes a key expire earlier, later or never.
func (c *clients) moveExpiry(ctx context.Context, k *key) {
	by, moved := c.caller(), k.limits
	moved.expires = time.Time{}
	var value any
	if c.rand.IntN(4) > 0 {
		moved.expires = by.began.Add(span(c.rand, time.Second, 20*time.Hour)).Truncate(time.Millisecond)
		value = moved.expires.Format(time.RFC3339Nano)
	}
	undo := c.beset("UpdateKey", "KeyByID")
	result, status, _ := by.send(ctx, c, "PATCH", keysPath+"/"+k.id, map[string]any{"expiresAt": value, "labels": map[string]any{"moved": "yes", "name": nil}})
	undo()
	c.tell(by.about(k.name), "moves the expiry of %s to %v with %s: %s, status %d", k.name, value, by, result, status)
	now := c.is(k)
	if now == nil {
		c.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
		return
	}
	changed := moved.are(now) && !k.limits.are(now)
	over := []*limits{{scopes: k.scopes, resources: k.resources, networks: k.networks, rate: k.rate, expires: k.expires}}
	if !k.expires.IsZero() && (moved.expires.IsZero() || moved.expires.After(k.expires)) {
		over = append(over, &moved)
	}
	by.judge(c, "moving the expiry of "+k.name, []string{k.name}, result, status, changed, over...)
	switch labels := now.Labels.Map(); {
	case !moved.are(now) && !k.limits.are(now):
		c.world.breach("a key keeps its limits", []string{k.name}, "%s is %+v", k.name, now)
	case result == done && (!moved.are(now) || labels["moved"] != "yes" || labels["name"] != ""):
		c.world.breach("acknowledged is done", []string{k.name}, "the expiry of %s was moved, and is %v with labels %v", k.name, now.ExpiresAt, labels)
	case result == refused && changed:
		c.world.breach("refused is not done", []string{k.name}, "the expiry of %s is %v", k.name, now.ExpiresAt)
	}
	if k.expires = now.ExpiresAt; changed && !k.expires.IsZero() && k.expires.Before(k.until) {
		k.until = k.expires
	}
}

// look lists keys, webhooks and events with a key. A limited key must see exactly the keys within
// its resources, and nothing of other resources.
func (c *clients) look(ctx context.Context, k *key) {
	if k.token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	list := func(path string) (all []struct {
		ID, Resource string
		Resources    []string
		Target       struct{ Kind, ID string }
	}, ok bool) {
		status, answer := c.request(ctx, k.token, "GET", path, nil)
		page := struct{ Data any }{&all}
		ok = status == http.StatusOK && json.Unmarshal(answer, &page) == nil
		c.tell([]string{k.name}, "lists %s with %s: status %d, %d", path, k.name, status, len(all))
		return all, ok
	}
	sees := make(map[string]bool)
	keys, known := list(keysPath + "?limit=100")
	for _, one := range keys {
		sees[one.ID] = true
	}
	for _, other := range c.keys {
		if want := !other.deleted && within(other.resources, k.resources); known && len(keys) < 100 && sees[other.id] != want {
			c.world.breach("a key sees what is within its resources", []string{k.name, other.name}, "%s sees %s: %v", k.name, other.name, sees[other.id])
		}
	}
	hooks, _ := list(hooksPath + "?limit=100")
	for _, one := range slices.Concat(keys, hooks) {
		if !within(one.Resources, k.resources) {
			c.world.breach("a key sees what is within its resources", []string{k.name}, "%s sees %s, which is of %v", k.name, one.ID, one.Resources)
		}
	}
	events, _ := list("/v2/notifications/events?limit=100")
	for _, one := range events {
		if !allows(k.resources, one.Resource) {
			c.world.breach("a key sees what is within its resources", []string{k.name, one.ID}, "%s sees %s, which is of %q", k.name, one.ID, one.Resource)
		}
	}
	entries, _ := list("/v2/audit-log?limit=100")
	for _, one := range entries {
		if known && len(keys) < 100 && k.resources != nil && one.Target.Kind == "key" && !sees[one.Target.ID] {
			c.world.breach("a key sees what is within its resources", []string{k.name}, "%s sees an audit entry of %s", k.name, one.Target.ID)
		}
	}
}

// subscribe creates a webhook with a key, and deletes it with the first key.
func (c *clients) subscribe(ctx context.Context) {
	by, name, resources := c.caller(), c.newName(), pick(c.rand, someResources...)
	c.world.receivers.add(name, c.account.id, well)
	body := map[string]any{"url": "https://" + name + ".example.com/", "events": []string{string(published)}}
	if resources != nil {
		body["resources"] = resources
	}
	result, status, answer := by.send(ctx, c, "POST", hooksPath, body)
	c.tell(by.about(name), "subscribes %s to events of %v with %s: %s, status %d", name, resources, by, result, status)
	over := &limits{scopes: scopes.Of(scopes.AccountRead), resources: resources}
	if by.key != nil { // a webhook has no other limits
		over.networks, over.rate, over.expires = by.networks, by.rate, by.expires
	}
	by.judge(c, "subscribing "+name, []string{name}, result, status, false, over)
	if id, made := answer["id"].(string); made && result == done {
		_, _ = c.request(ctx, c.account.admin, "DELETE", hooksPath+"/"+id, nil)
	}
}

// hurry sends more requests at once than a slow key may make.
func (c *clients) hurry(ctx context.Context) {
	i := slices.IndexFunc(c.keys, func(k *key) bool { return k.rate == slowRate && k.token != "" && !k.deleted && !k.disabled })
	if i < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	k, began, wall, process := c.keys[i], c.world.now(), c.world.wall.Load(), c.world.starts()
	admitted := 0
	for range slowRate + 4 {
		if status, _ := c.request(ctx, k.token, "GET", keysPath+"/self", nil); status == http.StatusOK {
			admitted++
		}
	}
	most := int(slowRate) + 1 + int((c.world.now()-began)/(10*time.Second))
	c.tell([]string{k.name}, "sends %d requests with %s at once: %d are admitted", slowRate+4, k.name, admitted)
	if admitted > most && wall == c.world.wall.Load() && process == c.world.starts() {
		c.world.breach("a slow key is held back", []string{k.name}, "%d requests with %s are admitted at once, where %d may be", admitted, k.name, most)
	}
}

// streamPath is a route of the host. Its requests run until their context ends, and return the
// cause.
const streamPath = "/stream"

func stream(w http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	_, _ = fmt.Fprint(w, context.Cause(r.Context()))
}

// stream begins a request that runs until its key ends, and ends the key in some way.
func (c *clients) stream(ctx context.Context, k *key) {
	if k.token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began, wall, process := c.world.wallNow(), c.world.wall.Load(), c.world.starts()
	answered := make(chan string, 1)
	go func() {
		defer close(answered)
		_, answer := c.request(ctx, k.token, "GET", streamPath, nil)
		answered <- string(answer)
	}()
	time.Sleep(span(c.rand, time.Millisecond, 5*time.Second))
	early, ended := "", false
	select {
	case early = <-answered:
		ended = true
	default:
	}
	alive, _ := k.state(k.token, inNarrow, began, c.world.wallNow())
	if causes := []error{auth.ErrKeyDeleted, auth.ErrKeyDisabled, auth.ErrKeyExpired, auth.ErrKeyReplaced}; alive && slices.ContainsFunc(causes, func(err error) bool { return early == err.Error() }) {
		c.world.breach("a live key's requests go on", []string{k.name}, "a request with %s ends: %s", k.name, early)
	}
	path, body, method, want := keysPath+"/"+k.id, "", "DELETE", auth.ErrKeyDeleted
	how := c.rand.IntN(4)
	expires := c.world.wallNow().Add(time.Second).Truncate(time.Millisecond)
	switch how {
	case 1:
		method, body, want = "PATCH", `{"enabled":false}`, auth.ErrKeyDisabled
	case 2:
		method, body, want = "PATCH", fmt.Sprintf(`{"expiresAt":%q}`, expires.Format(time.RFC3339Nano)), auth.ErrKeyExpired
	case 3:
		method, path, body, want = "POST", path+"/rotate", `{"graceSeconds":0}`, auth.ErrKeyReplaced
	}
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	was := c.is(k)
	status, answer := c.request(ctx, c.account.admin, method, path, reader)
	result := unknown
	if status >= 200 && status <= 299 {
		result = done
	}
	since := c.world.now()
	c.tell([]string{k.name}, "ends %s, with which a request runs, by %s %s %s: status %d", k.name, method, path, body, status)
	time.Sleep(3 * time.Second)
	calm, ok := c.world.calmSince()
	steady := result == done && alive && !ended && ok && calm < since-10*time.Second && wall == c.world.wall.Load() && process == c.world.starts()
	select {
	case cause := <-answered:
		if steady && cause != want.Error() && !strings.Contains(cause, `"error"`) { // unless the request was rejected, for example with 429
			c.world.breach("a revocation reaches running requests", []string{k.name}, "a request with %s ended because of %q, want %v", k.name, cause, want)
		}
	default:
		if steady {
			c.world.breach("a revocation reaches running requests", []string{k.name}, "a request with %s goes on: %v", k.name, want)
		}
		cancel()
		<-answered
	}
	switch now := c.is(k); {
	case how == 0:
		c.deleted(k, result)
	case how == 1:
		c.turned(k, true, result)
	case now == nil:
		c.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
	case how == 2:
		k.expires = now.ExpiresAt
	case was != nil && now.Hash != was.Hash: // it was rotated, even if the answer was lost
		var rotated struct{ Key string }
		_ = json.Unmarshal(answer, &rotated)
		k.token, k.previous = rotated.Key, ""
	}
}
