package bolt

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// takeRest takes over what alerts remember, requests that created something, notices,
// recoveries and events. Of alerts only if all events can be read: an alert whose event is lost
// is to be sent again.
func (f *fencer) takeRest() error {
	steps := []func() error{f.takeRequests, f.takeNotices, f.takeRecoveries}
	complete, err := f.carryEvents()
	if err != nil {
		return err
	}
	f.info.EventsLost.Known = !f.abandoned.LastLost() && !slices.Contains(f.info.Unreadable, string(bucketEvents))
	if complete {
		steps = append(steps, f.takeAlerts)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// eachNew calls change with the rows of a bucket that are not as they are in the abandoned file,
// but for those that it does not have.
func (f *fencer) eachNew(bucket []byte, change func(b *batch, p pair) error) error {
	return f.eachPair(bucket, func(b *batch, p pair) error {
		if p.theirs == nil || p.ours != nil && bytes.Equal(p.ours, p.theirs) {
			return nil
		}
		return change(b, p)
	})
}

func (f *fencer) takeAlerts() error {
	for _, bucket := range [][]byte{bucketAlerts, bucketDedupKeys} {
		err := f.eachNew(bucket, func(b *batch, p pair) error { return b.Put(bucket, p.key, p.theirs) })
		if err != nil {
			return err
		}
	}
	err := f.eachNew(bucketDueAlerts, func(b *batch, p pair) error { return b.Put(bucketDueAlerts, p.key, nil) })
	if err != nil {
		return err
	}
	scan, damaged := f.abandoned.Get(bucketMeta, keyFileScan)
	if scan == nil || damaged {
		return nil
	}
	return f.step(func(b *batch) error { return b.Put(bucketMeta, keyFileScan, scan) })
}

func (f *fencer) takeRequests() error {
	return f.eachNew(bucketRequests, func(b *batch, p pair) error {
		made, err := record.DecodeRequest(p.theirs)
		if err != nil {
			f.unreadable(string(bucketRequests))
			return nil
		}
		if err := b.Put(bucketRequestTimes, requestTime(made.At, p.key), nil); err != nil {
			return err
		}
		return b.Put(bucketRequests, p.key, p.theirs)
	})
}

// takeNotices adds the notices of since, and ends those that were taken since.
func (f *fencer) takeNotices() error {
	err := f.eachPair(bucketNoticesPending, func(b *batch, p pair) error {
		if p.theirs != nil || p.unsure {
			return nil
		}
		return b.Delete(bucketNoticesPending, p.key)
	})
	if err != nil {
		return err
	}
	return f.eachNew(bucketNotices, func(b *batch, p pair) error {
		entry, err := record.DecodeNoticeEntry(p.theirs)
		if err != nil {
			f.unreadable(string(bucketNotices))
			return nil
		}
		return f.takeNotice(b, entry.Account, entry.ID, entry.Notice, time.UnixMilli(entry.StoredAt))
	})
}

// takeNotice adds a notice, unless it is there.
func (f *fencer) takeNotice(b *batch, account, id string, notice []byte, storedAt time.Time) error {
	n, number, err := record.DecodeNotice(account, id, notice)
	if err != nil {
		f.unreadable(string(bucketNotices))
		return nil
	}
	waits, damaged := f.abandoned.Get(bucketNoticesPending, pendingNotice(account, number))
	n.Pending = n.Pending && (waits != nil || damaged) // twice rather than never
	if _, err = b.addNotice(n, storedAt, make(knownNotices)); errors.Is(err, record.ErrCorrupt) {
		return b.appendNotice(n, storedAt) // those before it in the backup are damaged: twice rather than never
	}
	return err
}

// takeRecoveries makes recoveries what they are in the abandoned file: one that was done since is
// not to be done again.
func (f *fencer) takeRecoveries() error {
	return f.eachNew(bucketRecoveries, func(b *batch, p pair) error {
		r, err := record.DecodeRecovery(string(p.key), p.theirs)
		if err != nil {
			f.unreadable(string(bucketRecoveries))
			return nil
		}
		open := record.DecodeID(b.Get(bucketOpenRecoveries, []byte(r.WebhookID)))
		if r.Done && open != r.ID { // another one of the webhook may be open
			return putRecoveryRow(b, &r)
		}
		return putRecovery(b, &r)
	})
}
