package storageapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/store"
)

// eraseStep is how many records a step of an erasure removes, about: others wait for some
// milliseconds at most.
const eraseStep = 500

// An erasure rests erasePause times as long as its last step took, at most maxErasePause.
const (
	erasePause    = 4
	maxErasePause = 100 * time.Millisecond
)

// Erase removes all that is kept of an account, and counts it: its keys, which are dead at
// once, before all else; its webhooks, events with their bodies, deliveries with their attempts, recoveries;
// what is remembered of its alerts and idempotency keys. Attempts that this process is making for it are cut
// short; results of those that others make are dropped. Afterwards no method finds
// anything of the account, and it may be used as one that never was.
//
// It takes steps of some milliseconds and rests for four times as long after each, so it does not keep others
// waiting however much there is to remove. Meanwhile the account is closed: what would add to it, such as creating a
// key or publishing an event, returns [auth.ErrErasing]. So the host's own part of the
// account should be closed before. If Erase returns an error, was cut short by ctx, or the process was killed, the account stays
// closed, and Erase is to be called again, also by another process: it goes on where it was, and
// the Receipt counts all steps. On PostgreSQL it returns only once the transactions have ended that published before the
// account was closed, see postgres.Store.EnqueueTx. Of an account that has nothing, also after an Erase whose answer was
// lost, the Receipt is zero.
//
// What the account was told of goes, too. One audit entry is stored afterwards, and told if [Config.Notify] is set:
// [audit.AccountErased], with who asked. It goes by age as all others, or when the account is erased again. If
// the process is killed between the last step and that, or the answer of the last step is lost, there is none.
//
// What it cannot remove: copies of the file; pages of the file that are free now, whose bytes stay until
// they are written again or the file is compacted; what a server's log or backups have; what was sent.
func (h *Handler) Erase(ctx context.Context, account string) (store.Receipt, error) {
	if account == "" {
		return store.Receipt{}, errors.New("storageapi: erase account: the account must be given")
	}
	for first := true; ; first = false {
		begun := time.Now()
		erased, more, err := h.store.EraseAccount(ctx, account, eraseStep)
		took := time.Since(begun)
		if err == nil && first { // nothing more is claimed for it
			err = h.Webhooks.EndDeliveries(ctx, account)
		}
		if err == nil && more {
			err = pause(ctx, min(erasePause*took, maxErasePause))
		}
		if err != nil {
			return store.Receipt{}, fmt.Errorf("storageapi: erase account: not complete, call it again: %w", err)
		}
		if !more {
			h.Auth.Forget(account)
			return erased, h.tellErased(ctx, account, erased)
		}
	}
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tellErased stores the audit entry of an erasure, if it has removed anything but audit entries.
func (h *Handler) tellErased(ctx context.Context, account string, erased store.Receipt) error {
	if erased.AuditEntries = 0; erased.IsZero() {
		return nil
	}
	n := audit.Of(ctx, account, audit.AccountErased, audit.Target{Kind: audit.TargetAccount})
	n.At = time.Now().UTC().Truncate(time.Millisecond)
	n.ID, n.Pending = h.ids.New(id.AuditEntry, n.At), h.notify
	if _, err := h.store.AddAuditEntries(ctx, []audit.Entry{n}); err != nil {
		return fmt.Errorf("storageapi: erase account: it is erased, but the audit entry of that was not stored: %w", err)
	}
	return nil
}
