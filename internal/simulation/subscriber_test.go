package simulation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A subscriber manages the webhooks of an account. Its first webhook is steady: it never changes,
// and its receiver always works.
type subscriber struct {
	*actor
	mu      sync.Mutex
	hooks   []*hook
	made    int
	tokens  int
	settled atomic.Bool // the steady webhook exists
}

// A hook is the expected state of a webhook.
type hook struct {
	name    string
	url     int // number of URLs it has had
	id      string
	steady  bool
	events  []string
	active  bool
	deleted bool
	resent  bool    // an event was resent, for this webhook or another
	states  []state // in chronological order

	resources []string // of its events; nil means all
	token     string   // the header's value; empty means none
	isSecret  bool     // the token is secret
	changing  bool     // a change is being made
}

// A state is a state that a webhook entered at some moment between from and to.
type state struct {
	from, to  time.Duration
	active    bool
	published bool // it is subscribed to the published type
	resources []string
	token     string
}

const (
	hooksPath = "/v2/notifications/webhooks"
	published = alerts.TypeTransactionsLimitReached // the type of the publishers' events
)

// tokenHeader is a header that some webhooks set.
const tokenHeader = "X-Sim-Token"

// settings returns a copy of the settings of a webhook, to change them.
func (k *hook) settings() hook {
	return hook{name: k.name, url: k.url, events: k.events, active: k.active, resources: k.resources, token: k.token, isSecret: k.isSecret}
}

// headers returns the member of a request that sets the token, or removes it.
func (k *hook) headers() map[string]any {
	if k.token == "" {
		return map[string]any{tokenHeader: nil}
	}
	return map[string]any{tokenHeader: map[string]any{"value": k.token, "secret": k.isSecret}}
}

func (k *hook) host() string { return fmt.Sprintf("%s-%d", k.name, k.url) }

func (s *subscriber) live(ctx context.Context, share float64) {
	s.account.begin(ctx)
	for s.world.era.from == 0 && len(s.hooks) == 0 && !s.world.broken() {
		s.create(ctx, true)
	}
	s.settled.Store(true)
	s.paced(60, share, func() {
		k := s.some()
		switch n := s.rand.IntN(16); {
		case n < 2 || k == nil:
			s.create(ctx, false)
		case n == 15:
			s.pause(ctx, k)
		case n == 14:
			s.look(ctx, k)
		case n < 4:
			s.patch(ctx, k)
		case n < 6:
			s.toggle(ctx, k)
		case n < 7:
			s.rotate(ctx, k)
		case n < 8:
			s.delete(ctx, k)
		case n < 9:
			s.deleteInGo(ctx, k)
		case n < 11:
			s.test(ctx, k)
		case n < 13:
			s.redeliver(ctx, k)
		default:
			s.recoverStep(ctx, k)
		}
	})
}

// some returns a random existing webhook other than the steady one, or nil.
func (s *subscriber) some() *hook {
	var list []*hook
	for _, k := range s.hooks {
		if !k.deleted && !k.steady {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[s.rand.IntN(len(list))]
}

// moody returns the hosts of receivers whose mood changes.
func (s *subscriber) moody() (hosts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.hooks {
		if !k.deleted && !k.steady {
			hosts = append(hosts, k.host())
		}
	}
	return hosts
}

// all returns all webhooks that were created.
func (s *subscriber) all() []*hook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hooks)
}

// change records a possible change of a webhook between from and now.
func (s *subscriber) change(k *hook, from time.Duration, to *hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.url, k.events, k.active, k.deleted = to.url, to.events, to.active, to.deleted
	k.resources, k.token, k.isSecret, k.changing = to.resources, to.token, to.isSecret, false
	k.states = append(k.states, state{from, s.world.now(), k.active && !k.deleted, k.subscribes(published), k.resources, k.token})
}

// subscribes reports whether the webhook is subscribed to a type.
func (k *hook) subscribes(t webhooks.EventType) bool {
	return slices.Contains(k.events, string(t)) || slices.Contains(k.events, string(webhooks.AllEvents))
}

// recent returns the webhook's states within the last minute. All attempts in progress began within
// that minute. known is false if the states are not known.
func (s *subscriber) recent(webhook string) (states []state, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.hooks, func(k *hook) bool { return k.name == webhook })
	if i < 0 || s.hooks[i].changing {
		return nil, false
	}
	since := s.world.now() - time.Minute
	for n, all := len(s.hooks[i].states)-1, s.hooks[i].states; n >= 0; n-- {
		states = append(states, all[n])
		if all[n].to < since {
			break
		}
	}
	return states, len(states) > 0
}

// receives checks that a webhook may get an event, and that its request has the header of the
// webhook.
func (s *subscriber) receives(webhook, event string, isTest bool, token string) {
	states, known := s.recent(webhook)
	if !known {
		return
	}
	if !slices.ContainsFunc(states, func(st state) bool { return st.token == token }) {
		s.world.breach("requests carry their webhook's headers", []string{webhook, event}, "%s gets %s with the token %q", webhook, event, token)
	}
	resource := s.world.events.resource(event)
	if !isTest && !slices.ContainsFunc(states, func(st state) bool { return allows(st.resources, resource) }) {
		s.world.breach("a limited webhook gets only events of its resources", []string{webhook, event}, "%s gets %s, which is of %q", webhook, event, resource)
	}
}

// wants reports whether an event published between from and to must be sent to the webhook. certain
// is false if the answer is not known.
func (s *subscriber) wants(k *hook, resource string, from, to time.Duration) (certain, wanted bool) {
	ok, off := s.world.ledger.off(k.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *state
	for i := range k.states {
		switch st := &k.states[i]; {
		case st.to < from:
			last = st
		case st.from <= to:
			return false, false
		}
	}
	if last == nil {
		return len(k.states) > 0 && to < k.states[0].from, false
	}
	if ok && off >= last.from && off <= to {
		return false, false // it was disabled at about that time
	}
	return true, last.active && last.published && allows(last.resources, resource)
}

var someEvents = [][]string{
	{string(published)},
	{string(published), string(alerts.TypeBalanceLow)},
	{string(alerts.TypeBandwidthLimitReached), string(alerts.TypeFilesExpiring)},
	{string(webhooks.AllEvents)},
}

func (s *subscriber) create(ctx context.Context, steady bool) {
	k := &hook{name: "s" + s.account.id[4:], url: 1, steady: steady, active: true}
	if !steady {
		s.made++
		k.name = fmt.Sprintf("w%sn%d", s.account.id[4:], s.made)
	}
	if k.events = pick(s.rand, someEvents...); steady {
		k.events = nil
		for _, event := range alerts.EventTypes() {
			k.events = append(k.events, string(event))
		}
	}
	mood := well
	if !steady {
		mood = pick(s.rand, well, well, hanging, failing)
		k.resources = pick(s.rand, someResources...)
	}
	s.changeToken(k)
	s.world.receivers.add(k.host(), s.account.id, mood)
	from := s.world.now()
	body := map[string]any{"url": "https://" + k.host() + ".example.com/", "events": k.events, "resources": k.resources}
	if k.token != "" {
		body["headers"] = k.headers()
	}
	var id, secret string
	result := unknown
	for try := 0; try < 4 && result == unknown; try++ {
		undo := s.beset("CreateWebhook", "KeyByHash", "UpdateAlert")
		var status int
		var answer map[string]any
		result, status, answer = s.send(ctx, s.account.admin, "POST", hooksPath, body, "Idempotency-Key", k.name)
		undo()
		s.tell([]string{k.name}, "creates %s: %s, status %d", k.name, result, status)
		id, _ = answer["id"].(string)
		secret, _ = answer["secret"].(string)
		time.Sleep(time.Second)
	}
	var found []webhooks.Webhook
	for _, w := range s.stored() {
		if webhookOf(hostOf(w.URL)) == k.name {
			found = append(found, w)
		}
	}
	switch {
	case len(found) > 1:
		s.world.breach("a request that is made again makes nothing more", []string{k.name}, "%d webhooks are %s", len(found), k.name)
	case result == done && (len(found) == 0 || found[0].ID != id):
		s.world.breach("acknowledged is done", []string{k.name}, "%s was created, and is not there", k.name)
	case result == refused && len(found) > 0:
		s.world.breach("refused is not done", []string{k.name}, "%s was refused, and is there", k.name)
	}
	if len(found) == 0 {
		return
	}
	if k.id = found[0].ID; secret == "" {
		secret = found[0].Secret.Reveal()
	}
	s.world.receivers.signs(k.name, secret, 0)
	k.changing = true
	s.mu.Lock()
	s.hooks = append(s.hooks, k)
	s.mu.Unlock()
	if !k.is(&found[0]) {
		s.world.breach("acknowledged is done", []string{k.name}, "%s is %+v, want %+v", k.name, found[0], k)
	}
	to := k.settings()
	to.active = found[0].Active
	s.change(k, from, &to)
}

// changeToken gives a webhook another token, or none.
func (s *subscriber) changeToken(k *hook) {
	s.tokens++
	if k.token = ""; s.rand.IntN(2) == 0 {
		k.token, k.isSecret = fmt.Sprintf("token %s %d", k.name, s.tokens), s.rand.IntN(2) == 0
	}
}

// is reports whether a stored webhook has the settings of k.
func (k *hook) is(now *webhooks.Webhook) bool {
	events := make([]string, len(now.Events))
	for i, e := range now.Events {
		events[i] = string(e)
	}
	var headers []webhooks.Header
	if k.token != "" {
		headers = []webhooks.Header{{Name: tokenHeader, Value: k.token, Secret: k.isSecret}}
	}
	return hostOf(now.URL) == k.host() && slices.Equal(events, k.events) && (now.Active == k.active || !now.Active && now.OffReason != "") &&
		slices.Equal(now.Resources.Names(), k.resources) && slices.Equal(now.Headers, headers)
}

func (s *subscriber) stored() (list []webhooks.Webhook) {
	s.world.truth(func(ctx context.Context, kept store.Store) {
		var err error
		if list, err = kept.ListWebhooks(ctx, s.account.id, driver.ListQuery{Limit: 1000}); err != nil {
			s.world.breach("the store can be asked", nil, "ListWebhooks: %v", err)
		}
	})
	return list
}

// is returns the stored webhook, or nil if it does not exist.
func (s *subscriber) is(k *hook) (now *webhooks.Webhook) {
	s.world.truth(func(ctx context.Context, kept store.Store) {
		found, err := kept.WebhookByID(ctx, s.account.id, k.id)
		switch {
		case err == nil:
			now = &found
		case !errors.Is(err, apierr.ErrNotFound):
			s.world.breach("the store can be asked", nil, "WebhookByID: %v", err)
		}
	})
	return now
}

// update changes a webhook and records the outcome.
func (s *subscriber) update(ctx context.Context, k *hook, body map[string]any, to hook) {
	from := s.world.now()
	s.mu.Lock()
	k.changing = true
	s.mu.Unlock()
	if to.active && !k.active {
		s.world.ledger.turnsOn(k.name)
	}
	undo := s.beset("UpdateWebhook", "WebhookByID", "UpdateAlert")
	result, status, _ := s.send(ctx, s.account.admin, "PATCH", hooksPath+"/"+k.id, body)
	undo()
	s.tell([]string{k.name}, "changes %s to %v: %s, status %d", k.name, body, result, status)
	now := s.is(k)
	if now == nil {
		s.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
		return
	}
	switch {
	case result == done && !to.is(now):
		s.world.breach("acknowledged is done", []string{k.name}, "%s was changed, and is %+v, want %+v", k.name, now, to)
	case result == refused && !k.is(now):
		s.world.breach("refused is not done", []string{k.name}, "%s is %+v", k.name, now)
	case !to.is(now):
		to = k.settings()
	}
	to.active = now.Active
	s.change(k, from, &to)
	if result == done && to.active && (body["url"] != nil || body["active"] != nil) {
		s.prompts(k, "")
	}
	s.explain(ctx, k)
}

// patch changes the URL, the events, the resources or the token of a webhook.
func (s *subscriber) patch(ctx context.Context, k *hook) {
	to := k.settings()
	switch s.rand.IntN(5) {
	case 0:
		to.events = pick(s.rand, someEvents...)
		s.update(ctx, k, map[string]any{"events": to.events}, to)
		return
	case 1:
		to.resources = pick(s.rand, someResources...)
		s.update(ctx, k, map[string]any{"resources": to.resources}, to)
		return
	case 2:
		s.changeToken(&to)
		s.update(ctx, k, map[string]any{"headers": to.headers()}, to)
		return
	}
	to.url++
	if to.isSecret { // secret headers do not move to another host
		to.token = ""
	}
	s.world.receivers.moves(k.name, to.host(), s.account.id, pick(s.rand, well, well, failing))
	s.update(ctx, k, map[string]any{"url": "https://" + to.host() + ".example.com/"}, to)
}

func (s *subscriber) toggle(ctx context.Context, k *hook) {
	to := k.settings()
	to.active = !k.active
	s.update(ctx, k, map[string]any{"active": to.active}, to)
}

// pause pauses a webhook for some minutes, and checks that nothing is sent to it meanwhile, except
// by attempts that were in flight. It may end the pause early.
func (s *subscriber) pause(ctx context.Context, k *hook) {
	set := func(body map[string]any) outcome {
		undo := s.beset("UpdateWebhook", "WebhookByID")
		result, status, _ := s.send(ctx, s.account.admin, "PATCH", hooksPath+"/"+k.id, body)
		undo()
		s.tell([]string{k.name}, "changes %s to %v: %s, status %d", k.name, body, result, status)
		return result
	}
	result := set(map[string]any{"pausedUntil": s.world.wallNow().Add(3 * time.Minute).Format(time.RFC3339Nano)})
	began, wall := s.world.now(), s.world.wall.Load()
	s.explain(ctx, k)
	if now := s.is(k); result == done && (now == nil || now.PausedUntil.IsZero()) {
		s.world.breach("acknowledged is done", []string{k.name}, "%s was paused, and is not", k.name)
	}
	time.Sleep(2 * time.Minute)
	if last := s.world.receivers.lastOf(k.host()); result == done && s.world.wall.Load() == wall && last > began+20*time.Second {
		s.world.breach("nothing is sent during a pause", []string{k.name}, "a request to %s came at %s, in a pause since %s", k.name, clock(last), clock(began))
	}
	if s.rand.IntN(2) == 0 || s.world.wall.Load() != wall { // the clock may have been set back by an hour
		set(map[string]any{"paused": false})
	}
}

// resume ends the pauses of all webhooks: after a change of the clock, a pause can last for days.
func (s *subscriber) resume(ctx context.Context) {
	for _, k := range s.hooks {
		if now := s.is(k); now != nil && !now.PausedUntil.IsZero() {
			s.send(ctx, s.account.admin, "PATCH", hooksPath+"/"+k.id, map[string]any{"paused": false})
		}
	}
}

func (s *subscriber) rotate(ctx context.Context, k *hook) {
	grace := pick(s.rand, 0, 600)
	was := s.is(k)
	s.world.receivers.rotates(k.name, true)
	defer s.world.receivers.rotates(k.name, false)
	undo := s.beset("UpdateWebhook", "WebhookByID")
	result, status, _ := s.send(ctx, s.account.admin, "POST", hooksPath+"/"+k.id+"/rotate-secret", map[string]any{"graceSeconds": grace})
	undo()
	s.tell([]string{k.name}, "rotates the secret of %s: %s, status %d", k.name, result, status)
	now := s.is(k)
	switch {
	case was == nil || now == nil:
		s.world.breach("what was not deleted is there", []string{k.name}, "%s is gone", k.name)
		return
	case result == done && now.Secret.Equal(was.Secret):
		s.world.breach("acknowledged is done", []string{k.name}, "the secret of %s was rotated, and is the one of before", k.name)
	case result == refused && !now.Secret.Equal(was.Secret):
		s.world.breach("refused is not done", []string{k.name}, "the secret of %s was not to be rotated, and was", k.name)
	}
	if !now.Secret.Equal(was.Secret) {
		// Attempts in the meantime may be signed with either secret.
		s.world.receivers.signs(k.name, now.Secret.Reveal(), time.Duration(grace)*time.Second+time.Minute)
	}
}

func (s *subscriber) delete(ctx context.Context, k *hook) {
	from := s.world.now()
	undo := s.beset("DeleteWebhook", "WebhookByID")
	result, status, _ := s.send(ctx, s.account.admin, "DELETE", hooksPath+"/"+k.id, nil)
	undo()
	s.tell([]string{k.name}, "deletes %s: %s, status %d", k.name, result, status)
	s.deleted(k, from, result)
}

func (s *subscriber) deleteInGo(ctx context.Context, k *hook) {
	from := s.world.now()
	call, end, looks := s.context(ctx)
	defer end()
	undo := s.beset("DeleteWebhook")
	err := s.world.reach().api.Webhooks.Delete(call, s.account.id, k.id, webhooks.DeleteParams{})
	undo()
	s.tell([]string{k.name}, "deletes %s in Go, context of %d looks: %v", k.name, looks, err)
	s.deleted(k, from, outcomeOf(err, errors.Is(err, apierr.ErrNotFound)))
}

func (s *subscriber) deleted(k *hook, from time.Duration, result outcome) {
	if result == done {
		s.world.isDeleted(k.name)
	}
	now := s.is(k)
	if result == done && now != nil {
		s.world.breach("acknowledged is done", []string{k.name}, "%s was deleted, and is there", k.name)
	}
	if result == refused {
		s.world.breach("what is there can be deleted", []string{k.name}, "the deletion of %s was refused", k.name)
	}
	to := k.settings()
	to.deleted = now == nil
	s.change(k, from, &to)
}

// test sends a test event. Its arrival ends the pause of a receiver that was down.
func (s *subscriber) test(ctx context.Context, k *hook) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	status, answer := s.request(ctx, s.account.admin, "POST", hooksPath+"/"+k.id+"/test", nil)
	s.tell([]string{k.name}, "tests %s: status %d, %s", k.name, status, answer)
	if status == 200 && bytes.Contains(answer, []byte(`"status":200`)) {
		s.prompts(k, "")
	}
}

// prompts checks that a user's request promptly causes an attempt to deliver the event, or any due
// delivery if event is empty.
func (s *subscriber) prompts(k *hook, event string) {
	began := s.world.now()
	mood, since := s.world.receivers.moodOf(k.host())
	now := s.is(k)
	waits := s.world.ledger.waits(k.name, event, began)
	if mood != well || began-since < time.Minute || now == nil || !now.Active || now.Paused(s.world.wallNow()) || !waits {
		return
	}
	calm, _ := s.world.calmSince()
	time.Sleep(promptly)
	_, off := s.world.ledger.off(k.name)
	if again, ok := s.world.calmSince(); !ok || again != calm || calm > began-aftermath || off >= began {
		return
	}
	if mood, again := s.world.receivers.moodOf(k.host()); mood != well || again != since {
		return
	}
	if s.world.ledger.waits(k.name, event, began) {
		s.world.breach("what a person presses ends the pause", []string{k.name, event}, "nothing was sent to %s within %v, though its receiver is well since %s",
			k.name, promptly, clock(since))
	}
}

// promptly is the maximum delay of an attempt that a user has requested.
const promptly = 2500 * time.Millisecond

// redeliver resends an event that was sent to the webhook before.
func (s *subscriber) redeliver(ctx context.Context, k *hook) {
	event, ok := s.world.events.some(s.rand, s.account.id)
	if !ok {
		return
	}
	k.resent = true
	defer s.world.ledger.sendsAgain(k.name, event)()
	undo := s.beset("Redeliver", "EventDeliveries")
	result, status, _ := s.send(ctx, s.account.admin, "POST", hooksPath+"/"+k.id+"/deliveries/"+event+"/redeliver", nil)
	undo()
	s.tell([]string{k.name, event}, "has %s sent to %s again: %s, status %d", event, k.name, result, status)
	if result == done {
		s.prompts(k, event)
	}
}

// look lists keys, webhooks and deliveries, and reads the stats and the health.
func (s *subscriber) look(ctx context.Context, k *hook) {
	for _, list := range [][2]string{
		{"ListWebhooks", hooksPath + "?limit=100"}, {"ListKeys", keysPath}, {"ListDeliveries", hooksPath + "/" + k.id + "/deliveries"},
	} {
		method, path := list[0], list[1]
		undo := s.beset(method)
		result, status, answer := s.send(ctx, s.account.admin, "GET", path, nil)
		undo()
		s.tell([]string{k.name}, "lists %s: %s, status %d", path, result, status)
		if result == refused {
			s.world.breach("what is there can be listed", []string{k.name}, "%s is answered %d", path, status)
		}
		if result != done || method != "ListWebhooks" {
			continue
		}
		there := make(map[any]bool)
		list, _ := answer["data"].([]any)
		for _, one := range list {
			fields, _ := one.(map[string]any)
			there[fields["id"]] = true
		}
		for _, k := range s.hooks {
			if there[k.id] == k.deleted {
				s.world.breach("what is there is listed", []string{k.name}, "%s is listed: %v; deleted: %v", k.name, there[k.id], k.deleted)
			}
		}
	}
	s.explain(ctx, k)
	call, end, _ := s.context(ctx)
	defer end()
	undo := s.beset("Unreported")
	_, err := s.world.reach().api.Webhooks.Stats(call)
	undo()
	s.tell(nil, "asks for the stats: %v", err)
	undo = s.beset("Ping")
	health := s.world.reach().api.Webhooks.Health(call)
	undo()
	s.tell(nil, "asks for the health: %v", health.ReadError)
}

// recoverStep resends all deliveries that failed or were skipped.
func (s *subscriber) recoverStep(ctx context.Context, k *hook) {
	k.resent = true
	s.world.ledger.sendsAgain(k.name, "") // never ends, since the job may continue later
	undo := s.beset("CreateRecovery", "RecoveryByID", "RecoveryByID")
	result, status, _ := s.send(ctx, s.account.admin, "POST", hooksPath+"/"+k.id+"/recoveries", map[string]any{})
	undo()
	s.tell([]string{k.name}, "recovers %s: %s, status %d", k.name, result, status)
}
