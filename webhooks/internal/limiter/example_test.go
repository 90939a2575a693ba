package limiter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/limiter"
)

// An attempt is what one asks of a receiver; here, nothing.
type attempt struct{ slot limiter.Slot }

func (a *attempt) Cancel()                    {}
func (a *attempt) Ended() bool                { return false }
func (a *attempt) Wait(context.Context) error { return nil }

func Example() {
	l := limiter.New(limiter.Config{Slots: 64, PerWebhook: 16, PerAccount: 32, MaxUnrecorded: 64, Timeout: 15 * time.Second})
	now := time.Now()
	try := func(outcome limiter.Outcome) {
		var a attempt
		l.Begin(&a.slot, &a, limiter.Start{Webhook: "wh_1", Account: "acct_1", At: now})
		rest := l.Observe(&a.slot, outcome, 20*time.Millisecond, now)
		l.Release(&a.slot, now)
		l.Recorded(&a.slot, now)
		state := l.State("wh_1")
		fmt.Println("cap", state.Cap, "open", state.Open, "leave it alone", rest > 0)
	}
	for range 5 {
		try(limiter.Failure)
	}
	webhooks, _ := l.Turns(now, 10)
	fmt.Println("probe now:", webhooks)

	now = now.Add(2 * time.Second)
	webhooks, turns := l.Turns(now, 10)
	fmt.Println("probe after the pause:", webhooks, turns)
	try(limiter.Success)
	l.EndTurns(now, false, nil)
	// Output:
	// cap 1 open false leave it alone false
	// cap 1 open false leave it alone false
	// cap 1 open false leave it alone false
	// cap 1 open false leave it alone false
	// cap 1 open true leave it alone true
	// probe now: []
	// probe after the pause: [wh_1] 1
	// cap 1 open false leave it alone false
}
