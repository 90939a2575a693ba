//go:build unix

package crash_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	webhooksPath = "/v2/notifications/webhooks"
	keysPath     = "/v2/api-keys"

	standing   = 3   // permanent webhooks per account
	maxBacklog = 300 // number of missing deliveries at which publishers wait
)

var accounts = []string{"alice", "bob"}

// loads are the concurrent client operations on a host, with the number of goroutines for each.
// They end when the host is dead or the session is stopped.
var loads = []struct {
	clients int
	do      func(*session)
}{
	{8, (*session).publish},
	{1, (*session).useKeys},
	{1, (*session).manage},
}

// A session runs the clients of one host.
type session struct {
	*harness
	*process
	stop   chan struct{} // closed to stop the clients
	acks   atomic.Int64
	enough int64
	busy   chan struct{} // closed after enough acknowledgements
}

func (s *session) goOn() bool {
	select {
	case <-s.stop:
		return false
	default:
		return s.alive()
	}
}

// publish publishes events, starting with those that earlier hosts did not acknowledge.
func (s *session) publish() {
	for s.goOn() {
		if s.ledger.backlog() > maxBacklog {
			s.rest(time.Millisecond)
			continue
		}
		e := s.nextEvent()
		if !s.announce(e) {
			return
		}
		if rand.IntN(16) == 0 && !s.announce(e) { // a repetition has no effect
			return
		}
	}
}

// announce publishes an event. If the host dies without a response, a later host publishes it
// again.
func (s *session) announce(e *event) bool {
	s.ledger.publishing(e)
	if _, ok := s.want("POST", fmt.Sprintf("/publish/%s/%s/%s", e.account, e.id, e.kind), "", "", http.StatusNoContent); !ok {
		s.again(e)
		return false
	}
	s.ledger.published(e)
	if s.acks.Add(1) == s.enough {
		close(s.busy)
	}
	return true
}

// manage creates, changes and deletes webhooks.
func (s *session) manage() {
	if !s.tidy() {
		return
	}
	var clients sync.WaitGroup
	clients.Go(s.churn)
	clients.Go(s.churn)
	clients.Go(s.toggle)
	clients.Go(s.redeliver)
	clients.Wait()
}

// churn creates webhooks, rotates their secrets and deletes them shortly afterwards. Previous
// secrets keep signing during the grace period, across hosts.
func (s *session) churn() {
	for s.goOn() {
		h, ok := s.create(accounts[rand.IntN(len(accounts))], alerts.TypeBalanceLow)
		if !ok {
			return
		}
		s.rest(rand.N(10 * time.Millisecond))
		if _, ok := s.want("POST", webhooksPath+"/"+h.id+"/rotate-secret", s.tokens[h.account], "", http.StatusOK); !ok {
			return
		}
		s.rest(rand.N(10 * time.Millisecond))
		if !s.delete(h) {
			return
		}
	}
}

// toggle disables and enables the first webhook of each account, and recovers the events that were
// skipped.
func (s *session) toggle() {
	for s.goOn() {
		for _, account := range accounts {
			h := s.standing[account][0]
			if !s.turn(h, off) {
				return
			}
			for range 50 {
				if s.rest(2 * time.Millisecond); s.ledger.missedBy(h) >= 4 {
					break
				}
			}
			if !s.turn(h, on) {
				return
			}
			if id, ok := s.recoverStep(h); !ok || !s.wait("/recovered/"+account+"/"+id) {
				return
			}
		}
	}
}

func (s *session) turn(h *hook, to state) bool {
	s.ledger.changing(h)
	_, ok := s.want("PATCH", webhooksPath+"/"+h.id, s.tokens[h.account], fmt.Sprintf(`{"active":%v}`, to == on), http.StatusOK)
	if ok {
		s.ledger.turned(h, to)
	}
	return ok
}

// recoverStep creates a recovery and returns its ID.
func (s *session) recoverStep(h *hook) (id string, ok bool) {
	s.ledger.recovering(h)
	r, ok := reply{status: http.StatusConflict}, true
	for ok && r.status == http.StatusConflict { // a recovery of an earlier host is in progress
		r, ok = s.want("POST", webhooksPath+"/"+h.id+"/recoveries", s.tokens[h.account], "", http.StatusAccepted, http.StatusConflict)
	}
	if !ok {
		return "", false
	}
	s.ledger.recovered(h)
	return decode[struct{ ID string }](s, r).ID, true
}

// redeliver redelivers an event that an earlier host delivered to the second webhook of each
// account.
func (s *session) redeliver() {
	for s.goOn() {
		for _, account := range accounts {
			h := s.standing[account][1]
			id := s.ledger.redelivering(h)
			if id == "" {
				continue
			}
			r, ok := s.want("POST", fmt.Sprintf("/redeliver/%s/%s/%s", account, h.id, id), "", "",
				http.StatusNoContent, http.StatusConflict)
			switch {
			case !ok:
				return
			case r.status == http.StatusNoContent:
				s.ledger.redelivered(h, id)
			}
		}
		s.rest(rand.N(20 * time.Millisecond))
	}
}

// useKeys creates, rotates and deletes keys. It repeats unanswered requests at the next host, and
// checks that each creates at most one key.
func (s *session) useKeys() {
	account := accounts[0]
	works := func(token string, status int) bool {
		_, ok := s.want("GET", keysPath+"?limit=1", token, "", status)
		return ok
	}
	if s.goodKey != "" && !works(s.goodKey, http.StatusOK) || s.deadKey != "" && !works(s.deadKey, http.StatusUnauthorized) {
		return
	}
	const newKey = `{"name":"k","scopes":["account:read"]}`
	if s.openRequest != "" {
		made, ok := s.wantOnce(s.openRequest, keysPath, s.tokens[account], newKey, http.StatusCreated, http.StatusOK)
		if !ok {
			return
		}
		again, ok := s.wantOnce(s.openRequest, keysPath, s.tokens[account], newKey, http.StatusOK)
		if !ok {
			return
		}
		if first, second := decode[struct{ ID string }](s, made).ID, decode[struct{ ID string }](s, again).ID; first != second {
			s.ledger.Errorf("a request that was made again made %s and %s", first, second)
		}
	}
	for s.goOn() {
		s.goodKey = ""
		s.openRequest = fmt.Sprint("request-", rand.Uint64())
		created, ok := s.wantOnce(s.openRequest, keysPath, s.tokens[account], newKey, http.StatusCreated)
		if !ok {
			return
		}
		s.openRequest = ""
		key := decode[struct{ ID, Key string }](s, created)
		if s.goodKey = key.Key; !works(s.goodKey, http.StatusOK) {
			return
		}
		s.goodKey = ""
		rotated, ok := s.want("POST", keysPath+"/"+key.ID+"/rotate", s.tokens[account], `{"graceSeconds":0}`, http.StatusOK)
		if !ok {
			return
		}
		s.goodKey, s.deadKey = decode[struct{ Key string }](s, rotated).Key, key.Key
		if !works(s.goodKey, http.StatusOK) || !works(s.deadKey, http.StatusUnauthorized) {
			return
		}
		token := s.goodKey
		s.goodKey = ""
		if _, ok := s.want("DELETE", keysPath+"/"+key.ID, s.tokens[account], "", http.StatusNoContent); !ok {
			return
		}
		if s.deadKey = token; !works(s.deadKey, http.StatusUnauthorized) {
			return
		}
		s.rest(rand.N(20 * time.Millisecond))
	}
}

// create creates a webhook. It returns false if the host has died.
func (s *session) create(account string, types ...webhooks.EventType) (*hook, bool) {
	h := s.ledger.creating(account, types...)
	body, err := json.Marshal(map[string]any{"url": s.receiver.url + h.path, "events": types})
	if err != nil {
		s.process.Error(err)
	}
	created, ok := s.want("POST", webhooksPath, s.tokens[account], string(body), http.StatusCreated)
	if !ok {
		return nil, false
	}
	webhook := decode[struct{ ID, Secret string }](s, created)
	secret, err := signing.ParseSecret(webhook.Secret)
	if err != nil {
		s.process.Error(err)
	}
	s.ledger.created(h, webhook.ID, secret)
	return h, true
}

// delete deletes an existing webhook.
func (s *session) delete(h *hook) bool { return s.remove(h, h.id, http.StatusNoContent) }

// remove asks the API to delete the webhook with the given ID.
func (s *session) remove(h *hook, id string, statuses ...int) bool {
	s.ledger.deleting(h)
	_, ok := s.want("DELETE", webhooksPath+"/"+id, s.tokens[h.account], "", statuses...)
	if ok {
		s.ledger.deleted(h)
	}
	return ok
}

// tidy compares the host's webhooks with the ledger, deletes webhooks whose creation or deletion
// was interrupted, and creates missing permanent ones.
func (s *session) tidy() bool {
	for _, account := range accounts {
		there, ok := s.list(account)
		if !ok {
			return false
		}
		for path, h := range s.ledger.of(account) {
			id := there[path]
			delete(there, path)
			switch {
			case h.gone > 0 && id != "":
				s.process.Errorf("%s is back, which was deleted", path)
			case h.gone == 0 && h.id != "" && !h.doomed && id != h.id:
				s.process.Errorf("%s is lost: the host has %q there, want %q", path, id, h.id)
			case h.gone > 0 || h.standing:
				// as expected
			case h.id == "" && id == "": // it was not created
				s.ledger.deleting(h)
				s.ledger.deleted(h)
			case h.id == "": // it was created, but its secret is unknown
				if !s.remove(h, id, http.StatusNoContent) {
					return false
				}
			default: // its deletion was not requested or not acknowledged
				if !s.remove(h, h.id, http.StatusNoContent, http.StatusNotFound) {
					return false
				}
			}
		}
		for path := range there {
			s.process.Errorf("%s is there: nobody asked for it", path)
		}
		for len(s.standing[account]) < standing {
			types := []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeFilesExpiring}[:1+len(s.standing[account])%2]
			h, ok := s.create(account, types...)
			if !ok {
				return false
			}
			h.standing = true
			s.standing[account] = append(s.standing[account], h)
		}
	}
	return true
}

// list returns the IDs of the account's webhooks, by path.
func (s *session) list(account string) (map[string]string, bool) {
	there := make(map[string]string)
	for cursor := ""; ; {
		r, ok := s.want("GET", webhooksPath+"?limit=100"+cursor, s.tokens[account], "", http.StatusOK)
		if !ok {
			return nil, false
		}
		page := decode[struct {
			Data       []struct{ ID, URL string }
			NextCursor string
			HasMore    bool
		}](s, r)
		for _, webhook := range page.Data {
			there[strings.TrimPrefix(webhook.URL, s.receiver.url)] = webhook.ID
		}
		if !page.HasMore {
			return there, true
		}
		cursor = "&cursor=" + page.NextCursor
	}
}

// wait polls the host until the condition at path holds, or nothing has arrived for a long time.
func (s *session) wait(path string) bool {
	arrived, since := 0, time.Now()
	for ; ; s.rest(10 * time.Millisecond) {
		r, ok := s.want("GET", path, "", "", http.StatusNoContent, http.StatusConflict)
		if !ok || r.status == http.StatusNoContent {
			return ok
		}
		if n := s.ledger.total().arrived; n > arrived {
			arrived, since = n, time.Now()
		} else if time.Since(since) > 20*time.Second {
			s.process.Errorf("%s is not so, and nothing arrives", path)
			return false
		}
	}
}

func decode[T any](s *session, r reply) (value T) {
	if err := json.Unmarshal(r.body, &value); err != nil {
		s.process.Errorf("%v: %s", err, r.body)
	}
	return value
}
