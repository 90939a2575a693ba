package bolt

import (
	"maps"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
)

// A batch is the state shared by the steps of one transaction. Rows that many steps change are kept
// in memory and written by Flush; a step must call Flush before it reads such rows.
type batch struct {
	*groupcommit.Tx
	log     *eventlog.Step
	audit   auditlog.Step
	parking *parking.Step
	marks   *marker
	tx      *bbolt.Tx // for reading

	keyRows *keyRows

	// alerts holds the alert states set by steps of the batch, by row. They enter the alert cache
	// after the commit.
	alerts map[string][]byte

	erasing *erasing
	closed  map[string]bool // accounts whose erasure began in this batch
}

// Flush writes the rows that earlier steps changed in memory.
func (b *batch) Flush() error {
	if err := b.parking.Unpark(); err != nil {
		return err
	}
	if err := b.marks.markCopies(b.Tx); err != nil {
		return err
	}
	return b.log.Flush()
}

// isErasing reports whether the account is under erasure, including an erasure begun in this
// batch.
func (b *batch) isErasing(account string) bool { return b.closed[account] || b.erasing.has(account) }

// tell stores an audit entry with a new ID. It ignores a zero entry.
func (b *batch) tell(n audit.Entry) error {
	if n.IsZero() || b.isErasing(n.Account) { // the erasure would remove it
		return nil
	}
	return b.audit.Append(&n, b.marks.clock.Time())
}

// addAuditEntry stores an audit entry. It skips zero entries, and entries whose ID another entry of
// the same target already has.
func (b *batch) addAuditEntry(n *audit.Entry, at time.Time, known auditlog.Known) (added bool, err error) {
	if n.IsZero() || b.isErasing(n.Account) {
		return false, nil
	}
	return b.audit.Add(n, at, known)
}

// erasing is the set of accounts under erasure: the keys of schema.Erasures.
type erasing struct {
	accounts atomic.Pointer[map[string]bool]
}

func (e *erasing) has(account string) bool {
	accounts := e.accounts.Load()
	return accounts != nil && (*accounts)[account]
}

// set adds or removes an account. Calls must not overlap: only write transactions and Open call it.
func (e *erasing) set(account string, on bool) {
	next := make(map[string]bool)
	if accounts := e.accounts.Load(); accounts != nil {
		maps.Copy(next, *accounts)
	}
	if on {
		next[account] = true
	} else {
		delete(next, account)
	}
	e.accounts.Store(&next)
}
