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
	"maps"
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
	mu       sync.Mutex
	accounts map[string]*accountPasses
	begun    []*Pass // within the last interval, roughly ordered by At
	underWay int
	closed   bool
}

type accountPasses struct {
	underWay map[string]*Pass // by webhook
	begun    []*Pass          // within the last interval, ordered by At
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
	now := time.Now()
	g.forget(now)
	own := g.accounts[account]
	if own == nil {
		own = &accountPasses{underWay: make(map[string]*Pass)}
	}
	share := max(1, min(maxAccountPasses, (maxPasses-g.underWay)/maxAccountPasses))
	if own.underWay[webhook] != nil || len(own.underWay) >= share || g.underWay >= maxPasses {
		return nil, ErrBusy
	}
	begun := &Pass{account: account, webhook: webhook, At: now}
	for i, earlier := range own.begun {
		if earlier.webhook == webhook || i == len(own.begun)-maxAccountPasses {
			if next := earlier.At.Add(interval); next.After(begun.At) {
				begun.At = next
			}
		}
	}
	if g.accounts == nil {
		g.accounts = make(map[string]*accountPasses)
	}
	g.accounts[account] = own
	own.underWay[webhook] = begun
	at, _ := slices.BinarySearchFunc(own.begun, begun.At.Add(1), func(b *Pass, at time.Time) int { return b.At.Compare(at) })
	own.begun = slices.Insert(own.begun, at, begun)
	g.begun = append(g.begun, begun)
	g.underWay++
	return begun, nil
}

// End ends a pass. The caller must send nothing more afterwards.
func (g *Gate) End(ended *Pass) {
	ended.Canceler.End()
	g.mu.Lock()
	defer g.mu.Unlock()
	now, own := time.Now(), g.accounts[ended.account]
	delete(own.underWay, ended.webhook)
	g.underWay--
	if now.Before(ended.At) { // the test event never began
		isEnded := func(b *Pass) bool { return b == ended }
		g.begun, own.begun = slices.DeleteFunc(g.begun, isEnded), slices.DeleteFunc(own.begun, isEnded)
	}
	g.drop(ended.account)
	g.forget(now)
}

// forget forgets passes that began before the last interval.
func (g *Gate) forget(now time.Time) {
	for len(g.begun) > 0 && now.Sub(g.begun[0].At) >= interval {
		account := g.begun[0].account
		g.begun = g.begun[1:]
		if own := g.accounts[account]; own != nil {
			own.begun = slices.DeleteFunc(own.begun, func(b *Pass) bool { return now.Sub(b.At) >= interval })
			g.drop(account)
		}
	}
}

// drop forgets an account that has no passes.
func (g *Gate) drop(account string) {
	if own := g.accounts[account]; len(own.underWay)+len(own.begun) == 0 {
		delete(g.accounts, account)
	}
}

// Evict cancels the running test event to a deleted webhook. It returns nil when nothing more will
// be sent, or the error of ctx if ctx ends first.
func (g *Gate) Evict(ctx context.Context, account, webhook string) error {
	g.mu.Lock()
	var found *Pass
	if own := g.accounts[account]; own != nil {
		found = own.underWay[webhook]
	}
	g.mu.Unlock()
	if found == nil {
		return nil
	}
	found.Cancel()
	return found.Wait(ctx)
}

// EvictAccount is like Evict, for all webhooks of an account.
func (g *Gate) EvictAccount(ctx context.Context, account string) error {
	g.mu.Lock()
	var found []*Pass
	if own := g.accounts[account]; own != nil {
		found = slices.Collect(maps.Values(own.underWay))
	}
	g.mu.Unlock()
	for _, pass := range found {
		pass.Cancel()
	}
	for _, pass := range found {
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
	var left []*Pass
	for _, own := range g.accounts {
		for _, pass := range own.underWay {
			left = append(left, pass)
		}
	}
	g.mu.Unlock()
	for _, pass := range left {
		_ = pass.Wait(ctx)
	}
	late, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	for _, pass := range left {
		pass.Cancel()
	}
	for _, pass := range left {
		_ = pass.Wait(late) // a canceled test event may still wait for the store
	}
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
