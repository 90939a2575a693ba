package bolt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// A delivered is a delivery of the restored file, and what the abandoned one says of it.
type delivered struct {
	number         uint64
	account, event string
	webhook        string
	attempts       []webhooks.Attempt
	outcomes       []webhooks.Outcome
	state          webhooks.DeliveryState // it was settled so; else empty
	pending        bool                   // it still is
}

// settleSince settles what was pending at the time of the backup and was settled since, and
// reports what may have been.
func (f *fencer) settleSince() error {
	for _, bucket := range [][]byte{bucketFresh, bucketPending} {
		for from := []byte{}; from != nil; {
			var list []delivered
			err := f.store.db.View(func(tx *bbolt.Tx) error {
				list, from = f.pendingFrom(tx, bucket, from)
				return nil
			})
			if err != nil {
				return err
			}
			for i := range list {
				f.ask(&list[i], list[i].number)
			}
			if err := f.settleAll(list); err != nil {
				return err
			}
		}
	}
	return nil
}

// pendingFrom returns some of the deliveries that are pending for webhooks that there are, by
// the rows of a bucket, and the row to go on with.
func (f *fencer) pendingFrom(tx *bbolt.Tx, bucket, from []byte) (list []delivered, next []byte) {
	segments := newSegments(tx)
	add := func(number uint64) (goOn bool) {
		segment, err := segments.at(number)
		if err != nil {
			return true // nothing can be sent of it
		}
		event, err := segment.Event(segment.Index(number))
		webhook, unknown := segment.Recipient(number)
		if err == nil && unknown == nil && tx.Bucket(bucketWebhookIDs).Get(webhook) != nil {
			list = append(list, delivered{number: number, account: event.Account, event: event.ID, webhook: string(webhook)})
		}
		return true
	}
	c := tx.Bucket(bucket).Cursor()
	k, value := c.Seek(from)
	for ; k != nil && len(list) < fenceStep; k, value = c.Next() {
		if len(k) != 8 {
			continue
		}
		if bytes.Equal(bucket, bucketPending) {
			add(numberOf(k))
		} else if m, err := record.DecodeBitmap(value); err == nil {
			m.Each(add)
		}
	}
	return list, bytes.Clone(k)
}

// ask reads what the abandoned file says of a delivery, which has that number there.
func (f *fencer) ask(d *delivered, number uint64) {
	if f.abandoned == nil {
		return
	}
	segment := f.segmentAt(number)
	if segment == nil {
		return
	}
	event, err := segment.Event(segment.Index(number))
	webhook, unknown := segment.Recipient(number)
	if err != nil || unknown != nil || event.ID != d.event || event.Account != d.account || string(webhook) != d.webhook {
		return // events were published in both since
	}
	fresh, damaged := f.inTheirs(bucketFresh, number)
	owed, unsure := f.abandoned.Get(bucketPending, record.NumberKey(number))
	if damaged || unsure {
		f.unreadable(string(bucketPending))
		return
	}
	if d.pending = fresh || owed != nil; !d.pending && !f.askAttempts(d, segment, number) {
		f.unreadable(string(bucketAttempts))
		d.state = ""
	}
}

// askAttempts reads the attempts at a delivery.
func (f *fencer) askAttempts(d *delivered, segment *record.Segment, number uint64) (readable bool) {
	readable = true
	read := func(value []byte) {
		attempt, outcome, err := record.DecodeAttempt(value)
		if readable = readable && err == nil; !readable {
			return
		}
		d.attempts, d.outcomes = append(d.attempts, attempt), append(d.outcomes, outcome)
		switch outcome {
		case webhooks.Deliver:
			d.state = webhooks.Delivered
		case webhooks.GiveUp:
			d.state = webhooks.Dead
		}
	}
	damaged := f.abandoned.Scan(bucketFirstAttempts, segment.Key, func(k, value []byte) bool {
		if !bytes.HasPrefix(k, segment.Key) || len(k) != 16 || numberOf(k[8:]) > number {
			return false
		}
		pack, err := record.DecodePack(value)
		if err != nil {
			return true
		}
		if found := pack.ByNumber(number); found != nil {
			read(found)
			return false
		}
		return true
	})
	key := record.NumberKey(number)
	for _, bucket := range [][]byte{bucketAttempts, bucketLastAttempts} {
		damaged = f.abandoned.Scan(bucket, key, func(k, value []byte) bool {
			if !bytes.HasPrefix(k, key) {
				return false
			}
			read(value)
			return true
		}) || damaged
	}
	return readable && !damaged
}

// segmentAt returns the segment of the abandoned file that has the number, or nil.
func (f *fencer) segmentAt(number uint64) *record.Segment {
	if f.segment.First <= number && number <= f.segment.Last {
		return &f.segment
	}
	f.segment = record.Segment{}
	damaged := f.abandoned.Scan(bucketEvents, record.NumberKey(number), func(k, value []byte) bool {
		if len(k) != 8 {
			return false
		}
		found, err := record.DecodeSegment(k, value)
		if err != nil {
			f.unreadable(string(bucketEvents))
		} else if found.First <= number {
			f.segment = found
		}
		return false
	})
	if damaged {
		f.unreadable(string(bucketEvents))
	}
	if f.segment.Last < number {
		return nil
	}
	return &f.segment
}

// inTheirs reports whether a bitmap of the abandoned file has the number.
func (f *fencer) inTheirs(bucket []byte, number uint64) (has, damaged bool) {
	damaged = f.abandoned.Scan(bucket, record.NumberKey(number), func(_, value []byte) bool {
		m, err := record.DecodeBitmap(value)
		has = err == nil && m.Has(number)
		return false
	})
	return has, damaged
}

// settleAll settles the deliveries that were settled, and reports those that may have been.
func (f *fencer) settleAll(list []delivered) error {
	for i := range list {
		switch d := &list[i]; {
		case d.state != "":
			f.report(&f.info.DeliveriesSettled, Finding{Kind: DeliverySettled, Account: d.account, ID: d.event, Webhook: d.webhook})
		case !d.pending && !f.deletedSince(Ref{d.account, d.webhook}):
			f.report(&f.info.MayBeSentTwice, Finding{Kind: MayBeSentTwice, Account: d.account, ID: d.event, Webhook: d.webhook})
		}
	}
	return f.step(func(b *batch) error {
		segments := newSegments(b.tx)
		for i := range list {
			if d := &list[i]; d.state != "" {
				if err := f.settle(b, d, segments); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// deletedSince reports whether the webhook was deleted since the backup: nothing is sent to it.
func (f *fencer) deletedSince(webhook Ref) bool {
	gone, known := f.gone[webhook]
	if !known && f.abandoned != nil {
		account, damaged := f.abandoned.Get(bucketWebhookIDs, []byte(webhook.ID))
		gone = account == nil && !damaged
		f.gone[webhook] = gone
	}
	return gone
}

// settle makes a delivery what it is in the abandoned file.
func (f *fencer) settle(b *batch, d *delivered, segments *segments) error {
	segment, err := segments.at(d.number)
	if err != nil {
		return err
	}
	known, _, _ := attemptsAt(b.tx, segment, d.number) // those that can be read
	last := 0
	if len(known) > 0 {
		last = known[len(known)-1].Number
	}
	for i := range d.attempts {
		if d.attempts[i].Number > last {
			if err := b.logAttempt(d.number, &d.attempts[i], d.outcomes[i]); err != nil {
				return err
			}
		}
	}
	b.noteFailed(d.webhook, d.number, d.state == webhooks.Dead)
	return b.removePending(d.number)
}

// carryEvents takes over the events that were published since the backup, with what became of
// their deliveries. It reports whether all of them could be read.
func (f *fencer) carryEvents() (complete bool, err error) {
	complete = true
	from := record.NumberKey(f.end)
	if !f.continues() {
		from = record.NumberKey(0)
	}
	for from != nil {
		rows, damaged := f.theirs(bucketEvents, from, carryStep)
		if damaged {
			f.unreadable(string(bucketEvents))
			complete = false
		}
		if from = nil; len(rows) == carryStep {
			last := rows[len(rows)-1].key
			if len(last) == 8 { // its bodies are next
				rows, from = rows[:len(rows)-1], last
			} else {
				from = append(bytes.Clone(last), 0)
			}
		}
		var carried []delivered
		err := f.step(func(b *batch) error {
			purged := newImporter(b)
			for i, r := range rows {
				if len(r.key) != 8 {
					continue
				}
				var bodies record.Pack
				if i+1 < len(rows) && bytes.Equal(rows[i+1].key, bodiesKey(r.key)) {
					bodies, _ = record.DecodePack(rows[i+1].value)
				}
				segment, err := record.DecodeSegment(r.key, r.value)
				if err != nil {
					f.unreadable(string(bucketEvents))
					complete = false
					continue
				}
				for i := range segment.Len() {
					if bodies.At(i) == nil && f.isPurged(&segment, i) {
						if err := f.carryPurged(purged, &segment, i); err != nil {
							return err
						}
						continue
					}
					if err := purged.endEvents(); err != nil {
						return err
					}
					list, lost, err := f.carry(b, &segment, i, bodies.At(i))
					if err != nil {
						return err
					}
					carried, complete = append(carried, list...), complete && !lost
				}
			}
			return purged.endEvents()
		})
		if err != nil {
			return false, err
		}
		if err := f.settleAll(carried); err != nil {
			return false, err
		}
	}
	return complete, nil
}

// isPurged reports whether the body of an event of the abandoned file was purged, or was when the event
// was imported there.
func (f *fencer) isPurged(segment *record.Segment, i int) bool {
	gone, _ := f.abandoned.Get(bucketMeta, keyBodiesGone)
	if len(gone) == 8 && segment.Last < numberOf(gone) {
		return true
	}
	found, err := segment.Event(i)
	return err == nil && found.NoBody
}

// carryPurged takes over what is left of an event whose body was purged since: nothing of it is sent, its id is
// known as long as it was there, and its deliveries are listed.
func (f *fencer) carryPurged(m *importer, segment *record.Segment, i int) error {
	found, err := segment.Event(i)
	if err != nil || found.ID == "" || found.Account == "" {
		f.unreadable(string(bucketEvents))
		return nil
	}
	ids, _ := f.abandoned.Get(bucketMeta, keyIDsGone)
	r := transfer.Event{
		EncodedEvent: found.EncodedEvent, PublishedAt: found.PublishedAt, Matched: found.Deliveries, NoBody: true,
		Forgotten: found.Forgotten || len(ids) == 8 && segment.Number(i) < numberOf(ids),
	}
	if isNew, err := m.lookEvent(&r); !isNew || err != nil {
		return err
	}
	for number, webhook := range segment.Recipients(i) {
		d := delivered{account: found.Account, event: found.ID, webhook: string(webhook)}
		f.ask(&d, number)
		state := d.state
		if skipped, _ := f.inTheirs(bucketSkipped, number); skipped {
			state = webhooks.Skipped
		}
		if state == "" && !d.pending {
			continue // its attempts are purged, too
		}
		r.Deliveries = append(r.Deliveries, transfer.Delivery{WebhookID: d.webhook, State: cmp.Or(state, webhooks.Dead), Attempts: d.attempts})
	}
	f.report(&f.info.EventsCarried, Finding{Kind: EventCarried, Account: found.Account, ID: found.ID})
	if m.events.IsEmpty() {
		if err := m.Flush(); err != nil { // the open segment, whose numbers come before
			return err
		}
	}
	return m.addEvent(&r)
}

// continues reports whether the abandoned file has the last event of the backup under the same
// number: it went on from there, and all that is new has a greater one. It did not if it was
// itself restored from an earlier backup.
func (f *fencer) continues() (same bool) {
	_ = f.store.db.View(func(tx *bbolt.Tx) error {
		ours, err := newSegments(tx).at(f.end - 1)
		if err != nil {
			return nil
		}
		theirs := f.segmentAt(f.end - 1)
		if theirs == nil || theirs.Len() == 0 {
			return nil
		}
		a, failed := ours.Event(ours.Len() - 1)
		b, unknown := theirs.Event(theirs.Index(f.end - 1))
		same = failed == nil && unknown == nil && a.ID == b.ID && a.Account == b.Account
		return nil
	})
	return same
}

// carryStep is how many rows of events a transaction takes over: half as many segments.
const carryStep = 64

// carry takes over an event, and returns the deliveries of it that were not skipped.
func (f *fencer) carry(b *batch, segment *record.Segment, i int, body []byte) (asked []delivered, lost bool, err error) {
	found, err := segment.Event(i)
	broken := err != nil || found.ID == "" || found.Account == ""
	for _, webhook := range segment.Recipients(i) {
		broken = broken || len(webhook) == 0
	}
	if broken {
		f.unreadable(string(bucketEvents))
		return nil, true, nil
	}
	found.Body = body
	e := f.store.newEvent(&found.EncodedEvent)
	defer e.release()
	if _, err := f.store.knownEvent(b, e); !errors.Is(err, webhooks.ErrNotFound) {
		return nil, false, err
	}
	if body == nil {
		f.report(&f.info.EventsLost.AtLeast, Finding{Kind: EventLost, Account: found.Account, ID: found.ID})
		return nil, true, nil
	}
	var active, inactive []string
	for number, webhook := range segment.Recipients(i) {
		if skipped, _ := f.inTheirs(bucketSkipped, number); skipped {
			inactive = append(inactive, string(webhook))
			continue
		}
		d := delivered{account: found.Account, event: found.ID, webhook: string(webhook)}
		f.ask(&d, number)
		active, asked = append(active, d.webhook), append(asked, d)
	}
	record.SetPublished(e.record, found.PublishedAt, found.Deliveries)
	n, err := b.appendEvent(e, active, inactive)
	if err != nil {
		return nil, false, err
	}
	f.store.noteID(b, e.key, n)
	if err := f.store.notePublished(b, n, found.PublishedAt); err != nil {
		return nil, false, err
	}
	f.report(&f.info.EventsCarried, Finding{Kind: EventCarried, Account: found.Account, ID: found.ID})
	for j := range asked {
		asked[j].number = n + 1 + uint64(j)
	}
	return asked, false, nil
}

// numberOf returns the number that a key is.
func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) }
