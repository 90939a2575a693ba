package bolt

import (
	"bytes"
	"context"
	"maps"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// loadErasing reads the accounts under erasure.
func (s *engine) loadErasing() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(schema.Erasures).ForEach(func(account, _ []byte) error {
			s.erasing.set(string(account), true)
			return nil
		})
	})
}

// EraseAccount implements [store.Eraser]. Keys, webhooks and alerts are sorted by account, but
// finding the account's events requires a scan of all events. Freed pages may contain erased data
// until they are reused.
func (s *engine) EraseAccount(ctx context.Context, account string, limit int) (erased store.Receipt, more bool, err error) {
	e, begun, err := s.findErasure(ctx, account)
	if err != nil {
		return erased, false, err
	}
	if !begun {
		return s.closeAccount(ctx, account)
	}
	looked := e
	err = s.writer.Run(ctx, func(b *batch) error {
		e, begun, err = s.eraseStep(b, looked, max(limit, 1))
		return err
	})
	if err != nil {
		return store.Receipt{}, false, err
	}
	return e.erased, begun && e.stage < len(eraseStages), nil
}

// eraseStep removes about limit records. looked is the position that findErasure returned;
// eraseStep starts there, unless another call has advanced further. begun is false if another call
// has completed the erasure meanwhile.
func (s *engine) eraseStep(b *batch, looked *erasure, limit int) (e *erasure, begun bool, err error) {
	if e, begun = readErasure(b.tx, looked.account); !begun {
		return e, false, nil
	}
	if looked.stage > e.stage || looked.stage == e.stage && bytes.Compare(looked.next, e.next) > 0 {
		e.stage, e.next = looked.stage, looked.next
	}
	if e.stage >= len(eraseStages) {
		return e, true, s.openAccount(b, e.account)
	}
	if err := b.Flush(); err != nil {
		return e, true, err
	}
	if e.next, err = eraseStages[e.stage].erase(s, b, e, limit); err != nil {
		return e, true, err
	}
	return e, true, e.put(b)
}

// findErasure returns the account's erasure, advanced to the next row to remove. begun is false if
// no erasure is in progress.
func (s *engine) findErasure(ctx context.Context, account string) (e *erasure, begun bool, err error) {
	look := func() (more bool, err error) {
		tx, err := s.view(ctx)
		if err != nil {
			return false, err
		}
		defer s.done(tx, catchFaults(), &err)
		if e == nil {
			if e, begun = readErasure(tx, account); !begun {
				return false, nil
			}
		}
		for e.stage < len(eraseStages) {
			key, more := eraseStages[e.stage].find(s, tx, e)
			if e.next = bytes.Clone(key); more || key != nil {
				return more, nil
			}
			e.stage++
		}
		return false, nil
	}
	for more := true; more && err == nil; {
		more, err = look()
	}
	return e, begun, err
}

// closeAccount begins an erasure: from then on, changes to the account are refused.
func (s *engine) closeAccount(ctx context.Context, account string) (erased store.Receipt, more bool, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		e, begun := readErasure(b.tx, account)
		if begun {
			erased = e.erased
			return nil
		}
		if b.closed == nil {
			b.closed = make(map[string]bool)
		}
		b.closed[account] = true
		if e.erased.Alerts, err = s.eraseAlerts(b, account); err != nil {
			return err
		}
		b.AfterCommit(func() {
			s.erasing.set(account, true)
			s.alerts.ForgetAccount(account)
			s.feed.Forget(driver.Scope{Account: account})
		})
		erased = e.erased
		return e.put(b)
	})
	return erased, err == nil, err
}

// openAccount ends an erasure: the account can be used again.
func (s *engine) openAccount(b *batch, account string) error {
	b.AfterCommit(func() { s.erasing.set(account, false) })
	return b.Delete(schema.Erasures, []byte(account))
}

// eraseAlerts removes the account's alerts.
func (s *engine) eraseAlerts(b *batch, account string) (erased int, err error) {
	prefix := record.Prefixed(account, "")
	series := make(map[string]bool)
	for _, bucket := range [][]byte{schema.Alerts, schema.DueAlerts} {
		old := rows.AllKeys(b.tx.Bucket(bucket), prefix)
		for _, k := range old {
			series[string(k)] = true // includes due alerts without a state
		}
		if err := b.DeleteAll(bucket, old); err != nil {
			return 0, err
		}
	}
	maps.DeleteFunc(b.alerts, func(row string, _ []byte) bool { return strings.HasPrefix(row, string(prefix)) })
	return len(series), nil
}
