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

// eraseStep is the approximate number of records that one erasure step removes. It keeps other
// writers waiting for a few milliseconds at most.
const eraseStep = 500

// An erasure pauses for erasePause times the duration of its last step, at most maxErasePause.
const (
	erasePause    = 4
	maxErasePause = 100 * time.Millisecond
)

// Erase removes all records of an account and returns their counts. It first removes the keys,
// which stop working at once, even for requests in progress (see [auth.ErrKeyDeleted]). It then
// removes webhooks, events with their bodies, deliveries with their attempts, recoveries, alert
// states and idempotency keys. It aborts this process's delivery attempts for the account; the
// results of other processes' attempts are discarded. Afterwards no method finds the account, and
// its name can be reused for a new account.
//
// Erase works in steps of a few milliseconds. After each step it pauses for four times the step's
// duration, at most 100 ms, so that a large account does not block other writers. Meanwhile the
// account is closed: calls that would add to it, such as creating a key or publishing an event,
// return [auth.ErrErasing]. Before calling Erase, close the account in the host's own code. If
// Erase fails, ctx ends or the process is killed, the account stays closed; call Erase again, in
// any process. It continues where it stopped, and the Receipt counts all steps. On PostgreSQL it
// waits for transactions that published before the account was closed, see
// postgres.Store.EnqueueTx. The Receipt is zero for an account without records, including when
// Erase is repeated because its response was lost.
//
// Erase also removes the account's audit entries. It then stores one [audit.AccountErased] entry
// with the actor, and passes it to [Config.Notify] if set. That entry expires like all others, and
// another erasure of the account removes it. It is missing if the process is killed after the last
// step, or if the response of the last step is lost.
//
// Erase does not reach copies of the file, a server's logs and backups, or events already sent.
// Bytes in free pages of the file remain until the pages are overwritten or the file is compacted.
func (h *Handler) Erase(ctx context.Context, account string) (store.Receipt, error) {
	if account == "" {
		return store.Receipt{}, errors.New("storageapi: erase account: account is required")
	}
	for first := true; ; first = false {
		begun := time.Now()
		erased, more, err := h.store.EraseAccount(ctx, account, eraseStep)
		took := time.Since(begun)
		if first {
			h.Auth.Changed(account, "")
		}
		if err == nil && first { // stop claiming deliveries of the account
			err = h.Webhooks.EndDeliveries(ctx, account)
		}
		if err == nil && more {
			err = pause(ctx, min(erasePause*took, maxErasePause))
		}
		if err != nil {
			return store.Receipt{}, fmt.Errorf("storageapi: erase account: incomplete, call Erase again: %w", err)
		}
		if !more {
			h.Auth.Forget(account)
			return erased, h.tellErased(ctx, account, erased)
		}
	}
}

// pause waits for the given duration. If ctx ends first, it returns the error of ctx.
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

// tellErased stores the audit entry of an erasure, so that Config.Notify receives the entry. It
// does nothing if the erasure removed only audit entries.
func (h *Handler) tellErased(ctx context.Context, account string, erased store.Receipt) error {
	if erased.AuditEntries = 0; erased.IsZero() {
		return nil
	}
	n := audit.Of(ctx, account, audit.AccountErased, audit.Target{Kind: audit.TargetAccount})
	n.At = time.Now().UTC().Truncate(time.Millisecond)
	n.ID, n.Pending = h.ids.New(id.AuditEntry, n.At), h.notify
	if _, err := h.store.AddAuditEntries(ctx, []audit.Entry{n}); err != nil {
		return fmt.Errorf("storageapi: erase account: erased, but the audit entry of the erasure was not stored: %w", err)
	}
	return nil
}
