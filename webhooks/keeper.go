package webhooks

import (
	"context"
	"log/slog"
	"time"
)

// A keeper does what can wait: it reviews alerts that were left due, recovers
// deliveries, purges what is past its time and turns off webhooks that fail. It works in small steps with pauses
// between them, four times as long as they are, so that deliveries go on beside it. Purges of
// a [ConcurrentPurger] have pauses as long as they are.
type keeper struct {
	store     Store
	clock     storeClock
	retention Retention
	logger    *slog.Logger
	halt      *halt
	due       func() // called when deliveries may have become due
	review    func(context.Context) (more bool, err error)
	warden    warden
	wake      chan struct{} // there may be something to recover
}

const (
	keeperInterval = time.Minute // between looks, if nobody calls
	recoverStep    = 256         // deliveries
	purgeStep      = 1000        // records
)

func newKeeper(store Store, config Config, halt *halt, due func(), review func(context.Context) (bool, error)) *keeper {
	return &keeper{
		store: store, clock: storeClock{store: store, logger: config.Logger}, retention: config.Retention, logger: config.Logger,
		halt: halt, due: due, review: review, wake: make(chan struct{}, 1),
	}
}

// hurry makes a running keeper look for recoveries now.
func (k *keeper) hurry() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until ctx is done.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(keeperInterval)
	defer tick.Stop()
	for {
		for reviews, recovers, purges, judges := true, true, true, true; reviews || recovers || purges || judges; { // in turns: none holds up the others
			reviews = reviews && k.step(ctx, "review", k.review)
			recovers = recovers && k.step(ctx, "recover", k.recover)
			purges = purges && k.step(ctx, "purge", k.purge)
			judges = judges && k.step(ctx, "turn off", k.warden.look)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.wake:
		}
	}
}

// step takes a step, and a pause if there is more to do.
func (k *keeper) step(ctx context.Context, what string, do func(context.Context) (more bool, err error)) (more bool) {
	if ctx.Err() != nil {
		return false
	}
	began := time.Now()
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	more, err := do(timed)
	if err != nil && ctx.Err() == nil && !k.halt.explains() {
		k.logger.Error("storageapi: webhook store failed", "step", what, "error", err, "again_in", keeperInterval)
	}
	if !more || err != nil {
		return false
	}
	pauses := time.Duration(4)
	if _, ok := k.store.(ConcurrentPurger); ok && what == "purge" {
		pauses = 1
	}
	select {
	case <-ctx.Done():
	case <-time.After(pauses * time.Since(began)):
	}
	return true
}

func (k *keeper) recover(ctx context.Context) (more bool, err error) {
	advanced, err := k.store.AdvanceRecovery(ctx, recoverStep)
	if advanced || err != nil { // it may have happened nevertheless
		k.due()
	}
	return advanced, err
}

func (k *keeper) purge(ctx context.Context) (more bool, err error) {
	now, err := k.clock.now(ctx)
	if err != nil {
		return false, err
	}
	more, err = k.store.Purge(ctx, Purge{
		Payloads:  before(now, k.retention.Payloads),
		Attempts:  before(now, k.retention.Attempts),
		EventIDs:  before(now, k.retention.EventIDs),
		DedupKeys: before(now, dedupKeyLife),
		Limit:     purgeStep,
	})
	if err != nil {
		k.due() // claims may have passed over what it was about to end
	}
	return more, err
}

// before returns since when things are kept.
func before(now time.Time, lifetime time.Duration) time.Time {
	if lifetime < 0 {
		return time.Time{}
	}
	return now.Add(-lifetime)
}
