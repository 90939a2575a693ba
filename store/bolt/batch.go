package bolt

import (
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
)

// A batch is the state shared by the steps of one transaction. Rows that many steps change are kept
// in memory and written by Flush; a step must call Flush before it reads such rows.
type batch struct {
	*groupcommit.Tx
	store   *engine
	log     *eventlog.Step
	audit   auditlog.Step
	parking *parking.Step
	tx      *bbolt.Tx // for reading

	keyRows *keyRows

	// alerts holds the alert states set by steps of the batch, by row. They enter the alert cache
	// after the commit.
	alerts map[string][]byte

	closed map[string]bool // accounts whose erasure began in this batch
}

// newBatch returns an empty batch. Only one exists at a time.
func (s *engine) newBatch(tx *groupcommit.Tx, log *eventlog.Writer) *batch {
	pagefile.Root(tx.Bolt).FillPercent = pagefile.RootFill
	b := &batch{Tx: tx, store: s, tx: tx.Bolt, keyRows: s.keyRows, audit: auditlog.Step{Tx: tx}, parking: s.parking.Begin(tx)}
	b.log = log.Begin(tx, func() error { return s.mark(b, markBusy) })
	return b
}

// Flush writes the rows that earlier steps changed in memory.
func (b *batch) Flush() error {
	if err := b.parking.Unpark(); err != nil {
		return err
	}
	if err := b.store.markCopies(b); err != nil {
		return err
	}
	return b.log.Flush()
}
