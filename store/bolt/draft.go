package bolt

import "encoding/binary"

// A draft is the segment of a batch: what its steps have published. Its memory serves
// one batch after the other.
type draft struct {
	first, next     uint64 // its first number, and the one after its last
	records, bodies packer
	log             packer // attempts
	fresh, skipped  bitmap
}

// publish adds an event to the draft, for webhooks to which it is owed and those that
// it skips, and returns its number. The draft is written first if it has no room.
func (b *batch) publish(record, body []byte, active, inactive []string) (number uint64, err error) {
	b.MarkWritten()
	d := b.draft
	numbers := 1 + uint64(len(active)+len(inactive))
	if d.records.len() > 0 && (d.next+numbers-d.first > maxSegment || len(d.bodies.data)+len(body) > maxSegmentBodies) {
		if err := b.writeDraft(); err != nil {
			return 0, err
		}
	}
	if d.records.len() == 0 {
		d.first = b.tx.Bucket(bucketEvents).Sequence() + 1
		d.next = d.first
		d.fresh.reset(d.first)
		d.skipped.reset(d.first)
	}
	number = d.next
	d.next += numbers

	to := d.records.next()
	*to = binary.BigEndian.AppendUint64(*to, number)
	for i, webhook := range active {
		to.string(webhook)
		d.fresh.set(number + 1 + uint64(i))
	}
	for i, webhook := range inactive {
		to.string(webhook)
		d.skipped.set(number + 1 + uint64(len(active)+i))
	}
	d.records.end()
	to.raw(record)
	d.records.end()
	d.bodies.next().raw(body)
	d.bodies.end()
	return number, nil
}

// writeDraft writes what was published since it was written last.
func (b *batch) writeDraft() error {
	d := b.draft
	if d.records.len() == 0 {
		return nil
	}
	key := seqKey(d.next - 1)
	if err := b.tx.Bucket(bucketEvents).SetSequence(d.next - 1); err != nil {
		return err
	}
	if err := b.Append(bucketEvents, key, d.records.record()); err != nil {
		return err
	}
	if err := b.Append(bucketBodies, key, d.bodies.record()); err != nil {
		return err
	}
	if !d.fresh.isEmpty() {
		if err := b.Append(bucketFresh, key, d.fresh.record()); err != nil {
			return err
		}
	}
	if !d.skipped.isEmpty() {
		if err := b.Append(bucketSkipped, key, d.skipped.record()); err != nil {
			return err
		}
	}
	return nil
}

// reset empties it. No batch uses what it made any more.
func (d *draft) reset() {
	d.records.reset()
	d.bodies.reset()
	d.log.reset()
}
