// Package testgate limits the number and frequency of test events. The limits are needed because
// senders of test events choose the receivers.
//
//	pass, err := gate.Begin(account, webhook)
//	defer gate.End(pass)
//	pass.Sleep(pass.At)
package testgate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

const (
	maxPasses        = 256         // running
	maxAccountPasses = 8           // running or begun within the last interval, per account
	interval         = time.Second // minimum time between two test events to one webhook
)

var (
	// ErrBusy is returned by [Gate.Begin] if a test event to the webhook is already running, or if
	// the number of test events has reached a limit.
	ErrBusy = errors.New("a test event is already running")

	// ErrClosed is returned by [Gate.Begin] after [Gate.Close].
	ErrClosed = errors.New("test events have stopped: the service is closed")
)

// A Gate tracks the test events that are running or began within the last interval. The zero Gate
// is ready to use and not closed.
type Gate struct {
	mu     sync.Mutex
	passes []*Pass
	closed bool
}

// A Pass admits one test event. Its Canceler is canceled when the webhook is deleted or the gate
// is closed.
type Pass struct {
	outbound.Canceler
	At time.Time // when the test event may begin

	account, webhook string
}

// Begin returns a pass for a test event to an account's webhook, or ErrBusy or ErrClosed. The
// caller must wait until Pass.At before it sends, and call End afterwards.
func (g *Gate) Begin(account, webhook string) (*Pass, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	begun := &Pass{account: account, webhook: webhook, At: time.Now()}
	g.passes = slices.DeleteFunc(g.passes, func(p *Pass) bool { return p.Ended() && begun.At.Sub(p.At) >= interval })
	running, own := 0, 0
	var ends []time.Time // ends of the intervals that begin with the account's passes
	for _, p := range g.passes {
		if !p.Ended() {
			running++
		}
		if p.account != account {
			continue
		}
		end := p.At.Add(interval)
		ends = append(ends, end)
		if p.webhook == webhook && end.After(begun.At) {
			begun.At = end
		}
		if !p.Ended() {
			own++
			if p.webhook == webhook {
				return nil, ErrBusy
			}
		}
	}
	if running >= maxPasses || own >= max(1, min(maxAccountPasses, (maxPasses-running)/maxAccountPasses)) {
		return nil, ErrBusy
	}
	slices.SortFunc(ends, time.Time.Compare)
	if i := len(ends) - maxAccountPasses; i >= 0 && ends[i].After(begun.At) {
		begun.At = ends[i]
	}
	g.passes = append(g.passes, begun)
	return begun, nil
}

// End ends a pass. The caller must send nothing more afterwards.
func (g *Gate) End(ended *Pass) {
	ended.Canceler.End()
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(ended.At) { // the test event never began
		g.passes = slices.DeleteFunc(g.passes, func(p *Pass) bool { return p == ended })
	}
}

// running returns the passes of running test events to the account's webhook. An empty webhook
// means all webhooks; an empty account means all accounts.
func (g *Gate) running(account, webhook string) (list []*Pass) {
	for _, p := range g.passes {
		if !p.Ended() && (account == "" || p.account == account) && (webhook == "" || p.webhook == webhook) {
			list = append(list, p)
		}
	}
	return list
}

// Evict cancels the running test events to a webhook of the account, or to all of its webhooks if
// webhook is empty. It returns nil when nothing more will be sent, or the error of ctx if ctx ends
// first.
func (g *Gate) Evict(ctx context.Context, account, webhook string) error {
	g.mu.Lock()
	list := g.running(account, webhook)
	g.mu.Unlock()
	for _, pass := range list {
		pass.Cancel()
	}
	for _, pass := range list {
		if err := pass.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close rejects new test events and waits for running ones. When ctx ends, it cancels the running
// test events and waits at most grace for them to end.
func (g *Gate) Close(ctx context.Context, grace time.Duration) {
	g.mu.Lock()
	g.closed = true
	list := g.running("", "")
	g.mu.Unlock()
	for _, pass := range list {
		_ = pass.Wait(ctx)
	}
	late, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = g.Evict(late, "", "") // a canceled test event may still wait for the store
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
