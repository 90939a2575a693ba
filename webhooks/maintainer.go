package webhooks

import (
	"context"
	"log/slog"
	"time"
)

// A maintainer does what can wait: it reviews alerts that were left due, recovers
// deliveries, purges what is past its time and turns off webhooks that fail. It works in small steps with pauses
// between them, four times as long as they are, so that deliveries go on beside it. Purges of
// a [ConcurrentPurger] have pauses as long as they are.
type maintainer struct {
	store     Store
	clock     storeClock
	retention Retention
	logger    *slog.Logger
	halt      *halt
	due       func() // called when deliveries may have become due
	review    func(context.Context) (more bool, err error)
	warden    warden
	waking    chan struct{} // there may be something to recover
}

const (
	maintainInterval = time.Minute // between looks, if nobody calls
	recoverStep      = 256         // deliveries
	purgeStep        = 1000        // records
)

func newMaintainer(store Store, config Config, halt *halt, due func(), review func(context.Context) (bool, error)) *maintainer {
	return &maintainer{
		store: store, clock: storeClock{store: store, logger: config.Logger}, retention: config.Retention, logger: config.Logger,
		halt: halt, due: due, review: review, waking: make(chan struct{}, 1),
	}
}

// wake makes a running maintainer look for recoveries now.
func (m *maintainer) wake() {
	select {
	case m.waking <- struct{}{}:
	default:
	}
}

// run works until ctx is done.
func (m *maintainer) run(ctx context.Context) {
	tick := time.NewTicker(maintainInterval)
	defer tick.Stop()
	for {
		for reviews, recovers, purges, judges := true, true, true, true; reviews || recovers || purges || judges; { // in turns: none holds up the others
			reviews = reviews && m.step(ctx, "review", m.review)
			recovers = recovers && m.step(ctx, "recover", m.recoverStep)
			purges = purges && m.step(ctx, "purge", m.purge)
			judges = judges && m.step(ctx, "turn off", m.warden.look)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.waking:
		}
	}
}

// step takes a step, and a pause if there is more to do.
func (m *maintainer) step(ctx context.Context, what string, do func(context.Context) (more bool, err error)) (more bool) {
	if ctx.Err() != nil {
		return false
	}
	began := time.Now()
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	more, err := do(timed)
	if err != nil && ctx.Err() == nil && !m.halt.explains() {
		m.logger.Error("storageapi: webhook store failed", "step", what, "error", err, "again_in", maintainInterval)
	}
	if !more || err != nil {
		return false
	}
	pauses := time.Duration(4)
	if _, ok := m.store.(ConcurrentPurger); ok && what == "purge" {
		pauses = 1
	}
	select {
	case <-ctx.Done():
	case <-time.After(pauses * time.Since(began)):
	}
	return true
}

func (m *maintainer) recoverStep(ctx context.Context) (more bool, err error) {
	advanced, err := m.store.AdvanceRecovery(ctx, recoverStep)
	if advanced || err != nil { // it may have happened nevertheless
		m.due()
	}
	return advanced, err
}

func (m *maintainer) purge(ctx context.Context) (more bool, err error) {
	now, err := m.clock.now(ctx)
	if err != nil {
		return false, err
	}
	more, err = m.store.Purge(ctx, Purge{
		Payloads:  before(now, m.retention.Payloads),
		Attempts:  before(now, m.retention.Attempts),
		EventIDs:  before(now, m.retention.EventIDs),
		DedupKeys: before(now, dedupKeyLife),
		Limit:     purgeStep,
	})
	if err != nil {
		m.due() // claims may have passed over what it was about to end
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
