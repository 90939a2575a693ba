package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// clients manages and uses the keys of an account. It performs one operation at a time, so that the
// expected state of each key is known.
type clients struct {
	*actor
	keys []*key
	made int
}

// A key is the expected state of an API key.
type key struct {
	name     string // name of the key, also in the story
	id       string
	token    string // empty means not known
	previous string // the token before the last rotation, while it may be valid
	until    time.Time
	deleted  bool
	disabled bool
	limits
}

const keysPath = "/v2/api-keys"

func (c *clients) live(ctx context.Context, share float64) {
	for !c.account.subscriber.settled.Load() {
		time.Sleep(time.Second)
	}
	c.paced(60, share, func() {
		k := c.some()
		switch n := c.rand.IntN(24); {
		case n < 5 || k == nil:
			c.create(ctx)
		case n < 6:
			c.createInGo(ctx)
		case n < 8:
			c.rename(ctx, k)
		case n < 9:
			c.rotate(ctx, k)
		case n < 11:
			c.delete(ctx, k)
		case n < 12:
			c.deleteInGo(ctx, k)
		case n < 13:
			c.hold(ctx, k)
		case n < 15:
			c.turn(ctx, k)
		case n < 17:
			c.moveExpiry(ctx, k)
		case n < 18:
			c.stream(ctx, k)
		case n < 19:
			c.look(ctx, k)
		case n < 20:
			c.subscribe(ctx)
		case n < 21:
			c.hurry(ctx)
		default:
			c.use(ctx)
		}
	})
}

// some returns a random existing key, or nil.
func (c *clients) some() *key {
	var alive []*key
	for _, k := range c.keys {
		if !k.deleted {
			alive = append(alive, k)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[c.rand.IntN(len(alive))]
}

func (c *clients) newName() string {
	c.made++
	return fmt.Sprintf("k%s-%d", c.account.id[4:], c.made)
}

// create creates a key over HTTP with an idempotency key. It repeats the request if the outcome is
// unknown.
func (c *clients) create(ctx context.Context) {
	name, by := c.newName(), c.caller()
	made := &key{name: name, limits: newLimits(c.rand, by.began)}
	var status int
	result := unknown
	for try := 0; try < 3 && result == unknown; try++ {
		undo := c.beset("CreateKey", "KeyByHash")
		var answer map[string]any
		result, status, answer = by.send(ctx, c, "POST", keysPath, made.body(name), "Idempotency-Key", name)
		undo()
		c.tell(by.about(name), "creates %s, %+v, with %s: %s, status %d", name, made.limits, by, result, status)
		made.id, _ = answer["id"].(string)
		made.token, _ = answer["key"].(string)
		time.Sleep(time.Second)
	}
	exists := c.adopt(made, result)
	by.judge(c, "creating "+name, []string{name}, result, status, exists, &made.limits)
}

func (c *clients) createInGo(ctx context.Context) {
	name := c.newName()
	call, end, looks := c.context(ctx)
	defer end()
	undo := c.beset("CreateKey")
	made, token, err := c.world.reach().api.Keys.Create(call, c.account.id, apikeys.CreateParams{Name: name, Scopes: scopes.Specified()})
	undo()
	result := outcomeOf(err, errors.Is(err, apierr.ErrExists))
	c.tell([]string{name}, "creates %s in Go, context of %d looks: %s, %v", name, looks, result, err)
	c.adopt(&key{name: name, id: made.ID, token: token.Reveal(), limits: limits{scopes: scopes.Specified()}}, result)
}

// adopt records the outcome of a creation, which it looks up in the store if necessary. It returns
// whether the key exists.
func (c *clients) adopt(made *key, result outcome) bool {
	name := made.name
	var found []apikeys.Key
	c.world.truth(func(ctx context.Context, s store.Store) {
		all, err := s.ListKeys(ctx, c.account.id, driver.ListQuery{Limit: 1000})
		if err != nil {
			c.world.breach("the store can be asked", nil, "ListKeys: %v", err)
		}
		for _, k := range all {
			if k.Name == name {
				found = append(found, k)
			}
		}
	})
	switch {
	case len(found) > 1:
		c.world.breach("a request that is made again makes nothing more", []string{name}, "%d keys are named %s", len(found), name)
	case result == done && (len(found) == 0 || found[0].ID != made.id):
		c.world.breach("acknowledged is done", []string{name}, "the key %s was created, and is not there", name)
	case result == refused && len(found) > 0:
		c.world.breach("refused is not done", []string{name}, "the key %s was refused, and is there", name)
	case len(found) > 0 && !made.are(&found[0]):
		c.world.breach("a key keeps its limits", []string{name}, "the key %s is %+v, want %+v", name, found[0], made.limits)
	}
	if len(found) > 0 {
		made.id = found[0].ID
		c.keys = append(c.keys, made)
	}
	return len(found) > 0
}

// is returns the stored key, or nil if it does not exist.
func (c *clients) is(k *key) (now *apikeys.Key) {
	c.world.truth(func(ctx context.Context, s store.Store) {
		found, err := s.KeyByID(ctx, c.account.id, k.id)
		switch {
		case err == nil:
			now = &found
		case !errors.Is(err, apierr.ErrNotFound):
			c.world.breach("the store can be asked", nil, "KeyByID: %v", err)
		}
	})
	return now
}

func (c *clients) rename(ctx context.Context, k *key) {
	name, by := c.newName(), c.caller()
	undo := c.beset("UpdateKey", "KeyByID")
	result, status, _ := by.send(ctx, c, "PATCH", keysPath+"/"+k.id, map[string]any{"name": name})
	undo()
	c.tell(by.about(k.name, name), "renames %s to %s with %s: %s, status %d", k.name, name, by, result, status)
	now := c.is(k)
	if now == nil {
		c.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
		return
	}
	by.judge(c, "renaming "+k.name, []string{k.name}, result, status, now.Name == name, &k.limits)
	switch {
	case result == done && now.Name != name:
		c.world.breach("acknowledged is done", []string{k.name, name}, "%s was renamed to %s and is %s", k.name, name, now.Name)
	case result == refused && now.Name != k.name:
		c.world.breach("refused is not done", []string{k.name, name}, "%s is %s", k.name, now.Name)
	default:
		k.name = now.Name
	}
}

func (c *clients) rotate(ctx context.Context, k *key) {
	grace := pick(c.rand, 0, 60, 3600)
	was := c.is(k)
	if was == nil {
		c.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
		return
	}
	undo := c.beset("UpdateKey", "KeyByID")
	by := c.caller()
	began := by.began
	result, status, answer := by.send(ctx, c, "POST", keysPath+"/"+k.id+"/rotate", map[string]any{"graceSeconds": grace})
	undo()
	c.tell(by.about(k.name), "rotates %s with %d s of grace with %s: %s, status %d", k.name, grace, by, result, status)
	now := c.is(k)
	token, _ := answer["key"].(string)
	rotated := now != nil && now.Hash != was.Hash
	by.judge(c, "rotating "+k.name, []string{k.name}, result, status, rotated, &k.limits)
	switch {
	case now == nil:
		c.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
	case result == done && !rotated:
		c.world.breach("acknowledged is done", []string{k.name}, "%s was rotated, and has its value of before", k.name)
	case result == refused && rotated:
		c.world.breach("refused is not done", []string{k.name}, "%s was not to be rotated, and was", k.name)
	case rotated:
		ended := c.world.wallNow()
		k.previous, k.until = k.token, ended.Add(time.Duration(grace)*time.Second)
		if !k.expires.IsZero() && k.expires.Before(k.until) {
			k.until = k.expires
		}
		if k.token = token; k.disabled || ended.Before(began) || ended.Sub(began) > 10*time.Minute {
			k.previous = "" // it ended at once, or the clock was set meanwhile, so its end is unknown
		}
	}
}

func (c *clients) delete(ctx context.Context, k *key) {
	undo := c.beset("DeleteKey", "KeyByID")
	by := c.caller()
	result, status, _ := by.send(ctx, c, "DELETE", keysPath+"/"+k.id, nil)
	undo()
	c.tell(by.about(k.name), "deletes %s with %s: %s, status %d", k.name, by, result, status)
	by.judge(c, "deleting "+k.name, []string{k.name}, result, status, c.is(k) == nil, &k.limits)
	if by.key != nil && result == refused { // judged above
		result = unknown
	}
	c.deleted(k, result)
}

func (c *clients) deleteInGo(ctx context.Context, k *key) {
	call, end, looks := c.context(ctx)
	defer end()
	undo := c.beset("DeleteKey")
	err := c.world.reach().api.Keys.Delete(call, c.account.id, k.id, apikeys.DeleteParams{})
	undo()
	c.tell([]string{k.name}, "deletes %s in Go, context of %d looks: %v", k.name, looks, err)
	c.deleted(k, outcomeOf(err, errors.Is(err, apierr.ErrNotFound)))
}

// deleted records the outcome of a deletion. A rejected deletion must have found no key.
func (c *clients) deleted(k *key, result outcome) {
	now := c.is(k)
	if result == done && now != nil {
		c.world.breach("acknowledged is done", []string{k.name}, "%s was deleted, and is there", k.name)
	}
	if result == refused {
		c.world.breach("what is there can be deleted", []string{k.name}, "the deletion of %s was refused", k.name)
	}
	k.deleted = now == nil
}

// turn disables or enables a key.
func (c *clients) turn(ctx context.Context, k *key) {
	undo := c.beset("UpdateKey", "KeyByID")
	by := c.caller()
	result, status, _ := by.send(ctx, c, "PATCH", keysPath+"/"+k.id, map[string]any{"enabled": k.disabled})
	undo()
	c.tell(by.about(k.name), "turns %s, which was disabled: %v, with %s: %s, status %d", k.name, k.disabled, by, result, status)
	now := c.is(k)
	by.judge(c, "turning "+k.name, []string{k.name}, result, status, now != nil && now.Disabled != k.disabled, &k.limits)
	if by.key != nil && result == refused { // judged above
		result = unknown
	}
	c.turned(k, !k.disabled, result)
}

// turned records the outcome of a request that disables or enables a key.
func (c *clients) turned(k *key, disabled bool, result outcome) {
	now := c.is(k)
	switch {
	case now == nil:
		c.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
		return
	case result == done && now.Disabled != disabled:
		c.world.breach("acknowledged is done", []string{k.name}, "%s was turned, and is disabled: %v", k.name, now.Disabled)
	case result == refused:
		c.world.breach("what is there can be changed", []string{k.name}, "turning %s was refused", k.name)
	}
	k.disabled = now.Disabled
}

// hold begins a request with a key, deletes or disables the key, and then sends the rest of the
// request.
func (c *clients) hold(ctx context.Context, k *key) {
	if k.token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name := c.newName()
	path, text := keysPath, fmt.Sprintf(`{"name":%q,"scopes":["account:read"]}`, name)
	switch c.rand.IntN(3) {
	case 0:
		path, text = hooksPath, fmt.Sprintf(`{"url":"https://%s.example.com/","events":["balance.low"]}`, name)
		c.world.receivers.add(name, c.account.id, well)
	case 1:
		path, text = keysPath+"/"+k.id+"/rotate", `{"graceSeconds":86400}`
	}
	body := &held{text: text, rest: make(chan struct{})}
	var status int
	var request sync.WaitGroup
	request.Go(func() { status, _ = c.request(ctx, k.token, "POST", path, io.NopCloser(body)) })
	time.Sleep(time.Second)
	result, disables := unknown, c.rand.IntN(2) == 0
	var end int
	if disables {
		end, _ = c.request(ctx, c.account.admin, "PATCH", keysPath+"/"+k.id, strings.NewReader(`{"enabled":false}`))
	} else {
		end, _ = c.request(ctx, c.account.admin, "DELETE", keysPath+"/"+k.id, nil)
	}
	c.tell([]string{k.name, name}, "ends %s (disables it: %v), with which a POST to %s is open: status %d", k.name, disables, path, end)
	if end >= 200 && end <= 299 {
		result = done
	}
	if disables {
		c.turned(k, true, result)
	} else {
		c.deleted(k, result)
	}
	close(body.rest)
	request.Wait()
	c.tell([]string{k.name, name}, "sends the rest of that POST: status %d", status)
	if !k.deleted && status == 200 {
		k.token, k.previous = "", "" // the key rotated itself, and its new token is unknown
	}
	if result == done && status >= 200 && status <= 299 {
		c.world.breach("a dead key does nothing", []string{k.name, name}, "a POST to %s with %s, which was ended before its body came, was answered %d", path, k.name, status)
	}
}

// held is a request body that yields its first byte at once and the rest later.
type held struct {
	text string
	read int
	rest chan struct{}
}

func (h *held) Read(b []byte) (int, error) {
	if h.read == 0 {
		h.read = 1
		return copy(b, h.text[:1]), nil
	}
	<-h.rest
	n, err := strings.NewReader(h.text[h.read:]).Read(b)
	h.read += n
	return n, err
}

// use sends a request with a key that may be dead.
func (c *clients) use(ctx context.Context) {
	if len(c.keys) == 0 {
		return
	}
	k := c.keys[c.rand.IntN(len(c.keys))]
	token := k.token
	if k.previous != "" && c.rand.IntN(2) == 0 {
		token = k.previous
	}
	if token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	began, address := c.world.wallNow(), c.address()
	status, _ := c.request(ctx, token, "GET", keysPath+"?limit=1", nil, addressHeader, address)
	c.tell([]string{k.name}, "uses %s at %s: status %d", k.name, address, status)
	alive, dead := k.state(token, address, began, c.world.wallNow())
	switch {
	case dead && status == 200:
		c.world.breach("nobody is authorised by a dead key", []string{k.name}, "%s is let through", k.name)
	case alive && status == 401:
		c.world.breach("a live key is let through", []string{k.name}, "%s is refused", k.name)
	}
}
