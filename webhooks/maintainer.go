package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/store/driver"
)

// A maintainer works in the background. It recovers deliveries, purges expired records and disables
// failing webhooks. Each step is small. After a step the maintainer pauses for four times the
// step's duration, so that deliveries continue. After a purge step, if the store can purge
// concurrently, it pauses only for the step's duration.
type maintainer struct {
	store       driver.WebhookStore
	clock       storeClock
	retention   Retention
	margin      time.Duration // see Retention.margin
	halt        *halt
	failing     *atomic.Bool // see dispatcher.failing
	entries     *entryMaker
	deactivator deactivator
	waking      chan struct{} // signals that there may be deliveries to recover
}

const (
	maintainInterval = time.Minute      // between rounds, unless wake is called
	trialInterval    = 10 * time.Second // between checks whether a failed store is writable
	recoverStep      = 256              // deliveries
	purgeStep        = 1000             // records
	dedupKeyLife     = day              // how long a deduplication key is kept after its Until, since clocks differ
)

func newMaintainer(d *dispatcher) *maintainer {
	return &maintainer{
		store:       d.store,
		clock:       storeClock{store: d.store, logger: d.config.Logger},
		retention:   d.config.Retention,
		margin:      d.config.Retention.margin(d.config.Outbound.Timeout),
		halt:        d.halt,
		failing:     &d.failing,
		entries:     d.entries,
		deactivator: deactivator{store: d.store, clock: clock.Clock{Now: d.config.Now}, config: &d.config, reporter: d.reporter, entries: d.entries},
		waking:      make(chan struct{}, 1),
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
	trial := time.NewTicker(trialInterval)
	defer trial.Stop()
	for {
		steps := []maintenance{{"recover", m.recoverStep}, {"purge", m.purge}, {"turn off", m.deactivator.check}, {"report its recovery", m.tellRecovered}}
		for len(steps) > 0 { // steps take turns, so that none blocks the others
			steps = slices.DeleteFunc(steps, func(s maintenance) bool { return !m.step(ctx, s) })
			select {
			case <-trial.C: // try the store here, too, because a round can take hours
				m.tryStore(ctx)
			default:
			}
		}
		for idle := true; idle; {
			select {
			case <-ctx.Done():
				return
			case <-trial.C:
				m.tryStore(ctx)
			case <-tick.C:
				idle = false
			case <-m.waking:
				idle = false
			}
		}
	}
}

// tryStore calls tellRecovered between steps and between rounds. It logs nothing, because the
// rounds log failures of the store.
func (m *maintainer) tryStore(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, _ = m.tellRecovered(timed)
}

// A maintenance is a kind of step, with a name for the log.
type maintenance struct {
	name string
	step func(context.Context) (more bool, err error)
}

// step makes one step of s, and pauses afterwards if there is more to do.
func (m *maintainer) step(ctx context.Context, s maintenance) (more bool) {
	if ctx.Err() != nil {
		return false
	}
	began := time.Now()
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	more, err := s.step(timed)
	if err != nil && ctx.Err() == nil {
		m.halt.log(s.name, err, maintainInterval)
	}
	if !more || err != nil {
		return false
	}
	pauses := time.Duration(4)
	if m.store.Capabilities().PurgesConcurrently && s.name == "purge" {
		pauses = 1
	}
	select {
	case <-ctx.Done():
	case <-time.After(pauses * time.Since(began)):
	}
	return true
}

func (m *maintainer) recoverStep(ctx context.Context) (more bool, err error) {
	return m.store.AdvanceRecovery(ctx, recoverStep)
}

func (m *maintainer) purge(ctx context.Context) (more bool, err error) {
	now, err := m.clock.now(ctx)
	if err != nil {
		return false, err
	}
	payloads := before(now, m.retention.Payloads)
	if !payloads.IsZero() {
		payloads = payloads.Add(-m.margin)
	}
	return m.store.Purge(ctx, driver.Purge{
		Payloads:     payloads,
		Attempts:     earlier(before(now, m.retention.Attempts), payloads),
		EventIDs:     earlier(before(now, m.retention.EventIDs), payloads),
		DedupKeys:    before(now, dedupKeyLife),
		AuditEntries: before(now, m.retention.Audit),
		Limit:        purgeStep,
	})
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// before returns the start of the period to keep; the zero time means that all records are kept.
func before(now time.Time, lifetime time.Duration) time.Time {
	if lifetime < 0 {
		return time.Time{}
	}
	return now.Add(-lifetime)
}

const (
	maxSkew   = 5 * time.Second // tolerated difference from the store's clock
	skewEvery = time.Hour       // between warnings
)

// A storeClock is the clock of a store that may be on another machine. It logs a warning if this
// node's clock differs, because signatures, key expiries and event dates use this node's clock.
type storeClock struct {
	store  driver.WebhookStore
	logger *slog.Logger
	said   time.Time // time of the last warning
}

// now returns the time of the store's clock.
func (c *storeClock) now(ctx context.Context) (time.Time, error) {
	asked := time.Now()
	now, err := c.store.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	// The store read its clock at some time after asked and before now.
	ahead, behind := asked.Sub(now), now.Sub(asked)-time.Since(asked)
	if max(ahead, behind) > maxSkew && (c.said.IsZero() || time.Since(c.said) >= skewEvery) {
		c.said = time.Now()
		way, by := "ahead of", ahead
		if behind > 0 {
			way, by = "behind", behind
		}
		c.logger.Warn("storageapi: this node's clock is "+way+" the store's; correct it", "by", by.Round(time.Millisecond))
	}
	return now, nil
}
