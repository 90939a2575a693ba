package audit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"
)

const (
	pollEvery    = time.Second      // how often the lease holder polls for pending entries
	leaseEvery   = 10 * time.Second // how often services without the lease request it
	leaseFor     = time.Minute      // must exceed leaseRenew plus the time of a call
	leaseRenew   = 20 * time.Second
	scanEvery    = time.Hour
	callTimeout  = 10 * time.Second // for one call to Notify
	storeTimeout = 10 * time.Second // for one call to the store
	abandonAfter = time.Second      // how long a call may outlast its context
	ackEvery     = time.Second      // between calls to TakeAuditEntries, while Notify is called

	pageSize    = 256                    // accounts, or entries of one account, per store call
	accountTime = 100 * time.Millisecond // time for one account before the next one is served
	maxInARow   = 16                     // consecutive failures before a pause
	maxBackoff  = 10 * time.Minute
	minimumWait = time.Second
)

// A notifier passes pending audit entries to the host. Each Run has its own notifier.
type notifier struct {
	*Service
	failing map[string]*failures // by account, if a failed entry of the account is pending
	renewed time.Time            // when the lease was last renewed; zero means not the holder
	scanned time.Time
	after   string   // the account after which the next round begins
	acked   []uint64 // numbers of accepted entries that are still pending in the store
	ackedAt time.Time
	inARow  int // consecutive failures
}

// failures holds the failures of an account since its last success.
type failures struct {
	backoff
	targets map[Target]*backoff // targets whose last call failed, by Ref
	seen    time.Time           // start of the last round in which the account had pending entries
}

// A backoff holds how long an account or a target must wait after failures.
type backoff struct {
	wait  time.Duration
	until time.Time
}

// fail doubles the wait.
func (b *backoff) fail() {
	b.wait = min(max(2*b.wait, minimumWait), maxBackoff)
	b.until = time.Now().Add(b.wait)
}

// round serves each account with pending entries once, and returns the wait until the next round.
func (n *notifier) round(ctx context.Context) time.Duration {
	if !n.acknowledge(ctx) { // otherwise the host would get the same entries again
		return pollEvery
	}
	if !n.lead(ctx) {
		return leaseEvery
	}
	if scan := n.config.Scan; scan != nil && (n.scanned.IsZero() || time.Since(n.scanned) >= scanEvery) {
		n.scanned = time.Now()
		if err := scan(ctx); err != nil && ctx.Err() == nil {
			n.config.Logger.Error("storageapi: scan for due audit entries failed", "error", err, "again_in", scanEvery)
		}
		if !n.lead(ctx) {
			return pollEvery
		}
	}
	begun := time.Now()
	n.inARow = 0
	accounts, err := n.accounts(ctx)
	if err != nil {
		n.logStore(ctx, "accounts with pending audit entries", err)
		return pollEvery
	}
	more := false
	for _, account := range accounts {
		if f := n.failing[account]; f != nil {
			if f.seen = begun; begun.Before(f.until) {
				continue
			}
		}
		left, ok := n.serve(ctx, account, begun)
		if account != "" {
			n.after = account
		}
		if !ok {
			return pollEvery
		}
		more = more || left
	}
	n.after = ""
	// Forget accounts without pending entries.
	maps.DeleteFunc(n.failing, func(_ string, f *failures) bool { return !f.seen.Equal(begun) })
	if n.acknowledge(ctx) && more {
		return 0
	}
	return pollEvery
}

// accounts returns the accounts with pending entries: first the host's own account, whose name is
// empty, then all others, beginning after the account served last.
func (n *notifier) accounts(ctx context.Context) ([]string, error) {
	var list []string
	for more, after := true, ""; more; {
		timed, cancel := context.WithTimeout(ctx, storeTimeout)
		page, err := n.store.PendingAccounts(timed, after, pageSize)
		cancel()
		if err != nil {
			return nil, err
		}
		list = append(list, page...)
		if more = len(page) == pageSize; more {
			after = page[pageSize-1]
		}
	}
	next := sort.SearchStrings(list, n.after+"\x00")
	return slices.Concat([]string{""}, list[next:], list[:next]), nil
}

// serve passes an account's entries to the host for at most accountTime. more reports whether
// entries remain that can be served at once, ok whether the round may continue.
//
// The entries are from one state of the store: for each entry of a target, the list also has the
// target's earlier pending entries. Once serve skips an entry of a target, it skips the target
// until the next round.
func (n *notifier) serve(ctx context.Context, account string, begun time.Time) (more, ok bool) {
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	list, err := n.store.PendingAuditEntries(timed, account, pageSize)
	cancel()
	if err != nil {
		n.logStore(ctx, "pending audit entries", err)
		return false, false
	}
	start := time.Now()
	skipped := n.waiting(account, list, start)
	delivered := false
	for i := range list {
		entry := &list[i].Entry
		if skipped[entry.Target.Ref()] {
			continue
		}
		if time.Since(start) >= accountTime {
			return true, true
		}
		if err := n.call(ctx, entry); err == nil {
			delivered = true
			n.succeeded(account, entry.Target.Ref())
			n.acked = append(n.acked, list[i].Number)
		} else if ctx.Err() != nil {
			return false, false
		} else {
			skipped[entry.Target.Ref()] = true
			if n.failed(account, entry, err, begun) {
				return false, n.inARow < maxInARow && n.mayContinue(ctx)
			}
		}
		if n.inARow >= maxInARow || !n.mayContinue(ctx) {
			return false, false
		}
	}
	return delivered && len(list) == pageSize, true
}

// waiting returns the targets of the account that are backing off at the given time. It forgets
// targets without pending entries.
func (n *notifier) waiting(account string, list []Numbered, at time.Time) map[Target]bool {
	waiting := make(map[Target]bool)
	f := n.failing[account]
	if f == nil {
		return waiting
	}
	for of, b := range f.targets {
		if len(list) < pageSize && !slices.ContainsFunc(list, func(p Numbered) bool { return p.Entry.Target.Ref() == of }) {
			delete(f.targets, of)
			continue
		}
		waiting[of] = at.Before(b.until)
	}
	return waiting
}

// mayContinue reports whether the round may continue. From time to time it also acknowledges
// entries to the store.
func (n *notifier) mayContinue(ctx context.Context) bool {
	return (time.Since(n.ackedAt) < ackEvery || n.acknowledge(ctx)) && n.lead(ctx)
}

func (n *notifier) succeeded(account string, of Target) {
	n.inARow = 0
	f := n.failing[account]
	if f == nil {
		return
	}
	f.backoff = backoff{}
	if delete(f.targets, of); len(f.targets) == 0 {
		delete(n.failing, account)
	}
}

// failed records a failure and reports whether the whole account must wait. It must if several of
// its targets have failed since its last success, because the account itself may then be failing.
func (n *notifier) failed(account string, entry *Entry, err error, begun time.Time) (waits bool) {
	n.inARow++
	f := n.failing[account]
	if f == nil {
		f = &failures{targets: make(map[Target]*backoff), seen: begun}
		n.failing[account] = f
	}
	b := f.targets[entry.Target.Ref()]
	if b == nil {
		b = new(backoff)
		f.targets[entry.Target.Ref()] = b
	}
	b.fail()
	if waits = len(f.targets) > 1; waits {
		f.fail()
	}
	n.config.Logger.Warn("storageapi: Config.Notify failed", "audit_entry", entry.ID, "action", string(entry.Action), "error", err, "again_in", max(b.wait, f.wait))
	return waits
}

// lead reports whether this service holds the lease, and renews the lease when necessary. It
// returns false if the lease ran out before the renewal: another service may already have delivered
// the entries that this service has read.
func (n *notifier) lead(ctx context.Context) bool {
	if !n.renewed.IsZero() && time.Since(n.renewed) < leaseRenew {
		return ctx.Err() == nil
	}
	now := time.Now()
	ranOut := !n.renewed.IsZero() && now.Sub(n.renewed) >= leaseFor
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held, err := n.store.LeaseAudit(timed, n.holder, leaseFor)
	if err != nil {
		n.logStore(ctx, "lease for audit entries", err)
		held = false
	}
	if n.renewed = now; !held {
		n.renewed = time.Time{}
	}
	return held && !ranOut
}

var (
	errNotReturned = errors.New("callback panicked or ended its goroutine")
	errLeftBehind  = errors.New("callback still running after its context ended")
)

// call calls Notify in a separate goroutine.
func (n *notifier) call(ctx context.Context, entry *Entry) error {
	timed, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		err := errNotReturned
		defer func() {
			_ = recover() // drop the panic value, since it may contain a secret
			over <- err
		}()
		err = n.config.Notify(timed, *entry)
	}()
	late := time.AfterFunc(callTimeout+abandonAfter, func() {
		n.config.Logger.Error("storageapi: Config.Notify has not returned; audit entries are no longer delivered", "audit_entry", entry.ID)
	})
	defer late.Stop()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-over:
		return err
	case <-time.After(abandonAfter):
		return errLeftBehind
	}
}

// acknowledge marks the accepted entries as no longer pending in the store, and reports whether
// that succeeded.
func (n *notifier) acknowledge(ctx context.Context) bool {
	n.ackedAt = time.Now()
	if len(n.acked) == 0 {
		return true
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := n.store.TakeAuditEntries(timed, n.acked); err != nil {
		n.logStore(ctx, "take audit entries", err)
		return false
	}
	n.acked = n.acked[:0]
	return true
}

// end releases the lease.
func (n *notifier) end(ctx context.Context) {
	n.acknowledge(ctx)
	if n.renewed.IsZero() {
		return
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_, _ = n.store.LeaseAudit(timed, n.holder, 0) // if this fails, the lease runs out
}

func (n *notifier) logStore(ctx context.Context, step string, err error) {
	if ctx.Err() == nil {
		n.config.Logger.Error("storageapi: store failed", "step", step, "error", err)
	}
}
