package notices

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"
)

const (
	lookEvery    = time.Second      // at what is pending, by who has the lease
	leaseEvery   = 10 * time.Second // who has it not asks for the lease
	leaseFor     = time.Minute      // longer than leaseRenew and a call together
	leaseRenew   = 20 * time.Second
	scanEvery    = time.Hour
	callTimeout  = 10 * time.Second // for one call of Notify
	storeTimeout = 10 * time.Second // for one call of the store
	grace        = time.Second      // for a call when Run ends
	takeEvery    = time.Second      // while calls are made

	pageSize    = 256                    // accounts, and notices of one
	turnTime    = 100 * time.Millisecond // of an account, before the next one's
	maxInARow   = 16                     // failures, before a pause
	maxBackoff  = 10 * time.Minute
	minimumWait = time.Second
)

// A notifier notifies the host of what is pending. It is of one Run.
type notifier struct {
	*Service
	failing map[string]*failures // by account: those of which a notice failed and is pending
	renewed time.Time            // the lease; zero: another has it
	scanned time.Time
	after   string   // the account that the next round begins after
	taken   []uint64 // numbers of notices that the host has taken, and the store does not know of
	tookAt  time.Time
	inARow  int // failures
}

// failures are those of an account since its last success.
type failures struct {
	backoff
	targets map[Target]*backoff // by their Ref: those whose last call failed
	met     time.Time           // when the round began in which the account was last met
}

// A backoff says until when an account or a target waits.
type backoff struct {
	wait  time.Duration
	until time.Time
}

// fail makes it wait twice as long as the last time.
func (b *backoff) fail() {
	b.wait = min(max(2*b.wait, minimumWait), maxBackoff)
	b.until = time.Now().Add(b.wait)
}

// round gives each account with something pending a turn, and returns when to do so again.
func (n *notifier) round(ctx context.Context) time.Duration {
	if !n.take(ctx) { // or else it would be told again and again
		return lookEvery
	}
	if !n.lead(ctx) {
		return leaseEvery
	}
	if scan := n.config.Scan; scan != nil && (n.scanned.IsZero() || time.Since(n.scanned) >= scanEvery) {
		n.scanned = time.Now()
		if err := scan(ctx); err != nil && ctx.Err() == nil {
			n.config.Logger.Error("storageapi: looking for notices to add failed", "error", err, "again_in", scanEvery)
		}
		if !n.lead(ctx) {
			return lookEvery
		}
	}
	begun := time.Now()
	n.inARow = 0
	accounts, err := n.accounts(ctx)
	if err != nil {
		n.logStore(ctx, "accounts with pending notices", err)
		return lookEvery
	}
	more := false
	for _, account := range accounts {
		if f := n.failing[account]; f != nil {
			if f.met = begun; begun.Before(f.until) {
				continue
			}
		}
		left, ok := n.turn(ctx, account, begun)
		if account != "" {
			n.after = account
		}
		if !ok {
			return lookEvery
		}
		more = more || left
	}
	n.after = ""
	maps.DeleteFunc(n.failing, func(_ string, f *failures) bool { return !f.met.Equal(begun) }) // nothing is pending
	if n.take(ctx) && more {
		return 0
	}
	return lookEvery
}

// accounts returns the accounts that have something pending: the host's own, which is empty, and
// then all others, beginning after the one whose turn was last.
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

// turn notifies the host of an account's notices for turnTime at most. left says that there are
// more to go on with at once; ok, that the round may go on.
//
// The list that it reads is of one state of the store, in which no notice of a target comes without
// those before it. A target of which one notice is passed over is passed over until the next turn.
func (n *notifier) turn(ctx context.Context, account string, begun time.Time) (left, ok bool) {
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	list, err := n.store.PendingNotices(timed, account, pageSize)
	cancel()
	if err != nil {
		n.logStore(ctx, "pending notices", err)
		return false, false
	}
	turn := time.Now()
	passed := n.waiting(account, list, turn)
	told := false
	for i := range list {
		notice := &list[i].Notice
		if passed[notice.Target.Ref()] {
			continue
		}
		if time.Since(turn) >= turnTime {
			return true, true
		}
		if err := n.call(ctx, notice); err == nil {
			told = true
			n.succeeded(account, notice.Target.Ref())
			n.taken = append(n.taken, list[i].Number)
		} else if ctx.Err() != nil {
			return false, false
		} else {
			passed[notice.Target.Ref()] = true
			if n.failed(account, notice, err, begun) {
				return false, n.inARow < maxInARow && n.goOn(ctx)
			}
		}
		if n.inARow >= maxInARow || !n.goOn(ctx) {
			return false, false
		}
	}
	return told && len(list) == pageSize, true
}

// waiting returns which targets of the account wait at that time. It forgets those that have nothing
// pending any longer.
func (n *notifier) waiting(account string, list []Numbered, at time.Time) map[Target]bool {
	waiting := make(map[Target]bool)
	f := n.failing[account]
	if f == nil {
		return waiting
	}
	for of, b := range f.targets {
		if len(list) < pageSize && !slices.ContainsFunc(list, func(p Numbered) bool { return p.Notice.Target.Ref() == of }) {
			delete(f.targets, of)
			continue
		}
		waiting[of] = at.Before(b.until)
	}
	return waiting
}

// goOn lets the store know from time to time what the host has taken, and reports whether the round
// may go on.
func (n *notifier) goOn(ctx context.Context) bool {
	return (time.Since(n.tookAt) < takeEvery || n.take(ctx)) && n.lead(ctx)
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

// failed notes a failure, and reports whether the account waits: it does if another of its targets
// failed as well, since its last success, so that it may be the account that fails.
func (n *notifier) failed(account string, notice *Notice, err error, begun time.Time) (waits bool) {
	n.inARow++
	f := n.failing[account]
	if f == nil {
		f = &failures{targets: make(map[Target]*backoff), met: begun}
		n.failing[account] = f
	}
	b := f.targets[notice.Target.Ref()]
	if b == nil {
		b = new(backoff)
		f.targets[notice.Target.Ref()] = b
	}
	b.fail()
	if waits = len(f.targets) > 1; waits {
		f.fail()
	}
	n.config.Logger.Warn("storageapi: Config.Notify failed", "notice", notice.ID, "action", string(notice.Action), "error", err, "again_in", max(b.wait, f.wait))
	return waits
}

// lead reports whether this service is the one that tells, and prolongs its lease in time.
// It is not if the lease has run out meanwhile: another may have told what this one has read.
func (n *notifier) lead(ctx context.Context) bool {
	if !n.renewed.IsZero() && time.Since(n.renewed) < leaseRenew {
		return ctx.Err() == nil
	}
	asked := time.Now()
	ranOut := !n.renewed.IsZero() && asked.Sub(n.renewed) >= leaseFor
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held, err := n.store.LeaseNotices(timed, n.holder, leaseFor)
	if err != nil {
		n.logStore(ctx, "lease for notices", err)
		held = false
	}
	if n.renewed = asked; !held {
		n.renewed = time.Time{}
	}
	return held && !ranOut
}

var (
	errNotReturned = errors.New("it panicked or ended its goroutine")
	errLeftBehind  = errors.New("it does not return, and Run does")
)

// call calls Notify on a goroutine of its own.
func (n *notifier) call(ctx context.Context, notice *Notice) error {
	timed, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		err := errNotReturned
		defer func() {
			_ = recover() // its value could hold anything
			over <- err
		}()
		err = n.config.Notify(timed, *notice)
	}()
	late := time.AfterFunc(callTimeout+grace, func() {
		n.config.Logger.Error("storageapi: Config.Notify does not return: no notices are told", "notice", notice.ID)
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
	case <-time.After(grace):
		return errLeftBehind
	}
}

// take lets the store know what the host has taken, and reports whether it does.
func (n *notifier) take(ctx context.Context) bool {
	n.tookAt = time.Now()
	if len(n.taken) == 0 {
		return true
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := n.store.TakeNotices(timed, n.taken); err != nil {
		n.logStore(ctx, "take notices", err)
		return false
	}
	n.taken = n.taken[:0]
	return true
}

// end gives the lease back.
func (n *notifier) end(ctx context.Context) {
	n.take(ctx)
	if n.renewed.IsZero() {
		return
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_, _ = n.store.LeaseNotices(timed, n.holder, 0) // or else it runs out
}

func (n *notifier) logStore(ctx context.Context, step string, err error) {
	if ctx.Err() == nil {
		n.config.Logger.Error("storageapi: store failed", "step", step, "error", err)
	}
}
