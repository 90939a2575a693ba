package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// deliveries checks events, their deliveries, and what finds them. If the events cannot be
// read, nothing can be said of the rest.
func (v *rowChecker) deliveries() {
	if v.broken[string(bucketEvents)] {
		return
	}
	before := len(v.report.Problems)
	v.segments = newSegments(v.tx)
	if v.first, _ = bounds(v.tx); v.first == 0 { // all events are purged
		v.first = v.tx.Bucket(bucketEvents).Sequence() + 1
	}
	v.loadIDRuns()
	copy(v.secret[:], v.tx.Bucket(bucketMeta).Get(keyIDSecret))
	last := v.eventRows()
	if v.last = v.tx.Bucket(bucketEvents).Sequence(); last > v.last {
		v.report.add(string(bucketEvents), "", "there is number %d, and the last one given is %d", last, v.last)
	}
	if len(v.report.Problems) > before {
		return
	}
	v.rows(bucketFresh, v.fresh)
	v.rows(bucketSkipped, v.skipped)
	v.rows(bucketPending, v.pending)
	v.rows(bucketEventIDs, v.eventIDs)
	v.rows(bucketFirstAttempts, v.firstAttempts)
	v.rows(bucketAttempts, v.attempt)
	v.rows(bucketLastAttempts, v.attempt)
	v.rows(bucketFailed, v.failed)
	v.runs()
}

// An idRun is a run of IDs that is whole.
type idRun struct {
	run         uint32
	first, last uint64 // numbers of events
}

// loadIDRuns finds the runs that are whole.
func (v *rowChecker) loadIDRuns() {
	if v.broken[string(bucketEventIDs)] {
		return
	}
	c := v.tx.Bucket(bucketEventIDs).Cursor()
	for k, value := c.First(); len(k) >= idHeaderSize; k, value = c.Seek(idHeaderKey(idRunOf(k) + 1)) {
		if first, last, ok := decodeIDHeader(k, value); ok {
			v.idRuns = append(v.idRuns, idRun{idRunOf(k), first, last})
		}
	}
}

// hasID reports whether the ID of an event is found that is in a run.
func (v *rowChecker) hasID(event *record.Event, n uint64) bool {
	i := sort.Search(len(v.idRuns), func(i int) bool { return v.idRuns[i].last >= n })
	if i == len(v.idRuns) || v.broken[string(bucketEventIDs)] {
		return true // it is in no run yet
	}
	found, err := appendFromRun(v.tx.Bucket(bucketEventIDs).Cursor(), nil, v.idRuns[i].run, v.secret.keyOf(event.Account, event.ID))
	return err != nil || slices.Contains(found, n)
}

// eventRows checks the segments and their bodies, and returns the last number.
func (v *rowChecker) eventRows() (last uint64) {
	bodiesGone := metaNumber(v.tx, keyBodiesGone)
	idsFrom := metaNumber(v.tx, keyIDsGone)
	var without []byte // the segment whose bodies come next
	var segment record.Segment
	check := func(k, value []byte) string {
		if isDivider(k, value) {
			return ""
		}
		if len(k) == 9 && k[8] == 'b' {
			switch bodies, err := record.DecodePack(value); {
			case !bytes.Equal(k[:8], without) && last > 0:
				return "there is no segment of these bodies"
			case err != nil || without != nil && !wholePack(bodies, segment.Len()):
				return "the bodies cannot be read, or are not as many as the events"
			}
			without = nil
			return ""
		}
		if without != nil && segment.Last >= bodiesGone && !importedWithout(&segment) {
			v.problem(bucketEvents, without, "the bodies of its events are missing")
		}
		without = nil
		var err error
		if segment, err = record.DecodeSegment(k, value); err != nil {
			return cannotBeRead
		}
		if segment.First <= last {
			return "its numbers are those of the segment before it"
		}
		last = segment.Last
		without = bytes.Clone(k)
		return v.segment(&segment, idsFrom)
	}
	v.rows(bucketEvents, check)
	if without != nil && segment.Last >= bodiesGone && !importedWithout(&segment) {
		v.problem(bucketEvents, without, "the bodies of its events are missing")
	}
	return last
}

// importedWithout reports whether the events of a segment had no bodies when they were imported.
func importedWithout(s *record.Segment) bool {
	event, err := s.Event(0)
	return err == nil && event.NoBody
}

// wholePack reports whether a pack has that many records, each of which is there.
func wholePack(pack record.Pack, n int) bool {
	for i := range pack.Len() {
		if pack.At(i) == nil {
			return false
		}
	}
	return pack.Len() == n
}

// segment checks the events of a segment, and that those are found by their ids whose number is from a
// number on and before another.
func (v *rowChecker) segment(s *record.Segment, idsFrom uint64) string {
	if s.Len() == 0 {
		return cannotBeRead
	}
	for i := range s.Len() {
		event, err := s.Event(i)
		n := s.Number(i)
		if err != nil || n == 0 || event.ID == "" || event.Account == "" {
			return "an event cannot be read"
		}
		next := n + 1
		for number, webhook := range s.Recipients(i) {
			if next = number + 1; len(webhook) == 0 {
				return "a delivery is for no webhook"
			}
		}
		if next > s.End(i) { // and less than that where an account was erased
			return "the deliveries of an event are not as many as their numbers"
		}
		v.report.Events++
		if !event.Forgotten && n >= idsFrom && !v.hasID(&event, n) {
			return fmt.Sprintf("event_ids does not have event %d", n)
		}
	}
	return ""
}

// bits checks a set of deliveries of a segment, and calls visit with each.
func (v *rowChecker) bits(k, value []byte, visit func(number uint64, webhook []byte)) string {
	m, err := record.DecodeBitmap(value)
	if err != nil || len(k) != 8 {
		return cannotBeRead
	}
	segment, err := record.DecodeSegment(k, v.tx.Bucket(bucketEvents).Get(k))
	switch {
	case err != nil:
		return "there is no such segment"
	case m.First != segment.First || m.IsEmpty():
		return "it does not begin where the segment does, or is empty"
	}
	set := 0
	m.Each(func(uint64) bool { set++; return true })
	for i := range segment.Len() {
		for number, webhook := range segment.Recipients(i) {
			if m.Has(number) {
				set--
				visit(number, webhook)
			}
		}
	}
	if set > 0 {
		return "it has numbers that are no deliveries"
	}
	return ""
}

// owed counts a delivery that is pending as Open would.
func (v *rowChecker) owed(webhook []byte) {
	if account, ok := v.get(bucketWebhookIDs, webhook); ok && account != nil {
		v.report.Pending++
	}
}

func (v *rowChecker) fresh(k, value []byte) string {
	return v.bits(k, value, func(_ uint64, webhook []byte) { v.owed(webhook) })
}

func (v *rowChecker) skipped(k, value []byte) (what string) {
	indexed := metaNumber(v.tx, keyRuns)
	bits := v.bits(k, value, func(number uint64, webhook []byte) {
		switch {
		case !v.broken[string(bucketFresh)] && inBitmap(v.tx, bucketFresh, number):
			what = fmt.Sprintf("delivery %d is skipped, and pending", number)
		case number < indexed && !v.hasFailed(number, webhook):
			what = fmt.Sprintf("failed_deliveries does not have delivery %d", number)
		}
	})
	if bits != "" {
		return bits
	}
	return what
}

// hasFailed reports whether the index of failed deliveries has one, or need not have it.
func (v *rowChecker) hasFailed(number uint64, webhook []byte) bool {
	key := failedKey(number, string(webhook))
	value, ok := v.get(bucketFailed, key)
	m, err := record.DecodeFailed(binary.BigEndian.Uint64(key), value)
	return !ok || err != nil || m.Has(number) || v.inErasure(number)
}

// inErasure reports whether a delivery is of an account that is being erased. The rows of such an
// account in indexes are deleted with the first of its events that are in them.
func (v *rowChecker) inErasure(number uint64) bool {
	segment, err := v.segments.at(number)
	if err != nil {
		return false
	}
	event, err := segment.Event(segment.Index(number))
	return err == nil && v.isErasing(event.Account)
}

// recipient returns the webhook of a delivery, or what is wrong.
func (v *rowChecker) recipient(number uint64) (webhook []byte, what string) {
	segment, err := v.segments.at(number)
	if err == nil {
		webhook, err = segment.Recipient(number)
	}
	if err != nil {
		return nil, "there is no such delivery"
	}
	return webhook, ""
}

func (v *rowChecker) pending(k, value []byte) string {
	if len(k) != 8 {
		return "the key of the row is no number"
	}
	number := binary.BigEndian.Uint64(k)
	webhook, what := v.recipient(number)
	if what != "" {
		return what
	}
	v.owed(webhook)
	if _, err := record.DecodePending(value); err != nil {
		return cannotBeRead
	}
	if !v.broken[string(bucketFresh)] && inBitmap(v.tx, bucketFresh, number) {
		return "it is pending as it was published, too"
	}
	return ""
}

// eventIDs checks a row of IDs. That it finds its events is checked with these.
func (v *rowChecker) eventIDs(k, value []byte) string {
	first, last, isHeader := decodeIDHeader(k, value)
	if isHeader && first <= last && last <= v.tx.Bucket(bucketEvents).Sequence() {
		return ""
	}
	if entries, err := record.AppendIDEntries(nil, value); err != nil || len(entries) == 0 || len(k) != idRowSize {
		return cannotBeRead
	}
	return ""
}

func (v *rowChecker) firstAttempts(k, value []byte) string {
	if len(k) != 16 {
		return "the key of the row is not two numbers"
	}
	pack, err := record.DecodePack(value)
	if err != nil || pack.Len() == 0 {
		return cannotBeRead
	}
	segment, err := record.DecodeSegment(k[:8], v.tx.Bucket(bucketEvents).Get(k[:8]))
	if err != nil {
		return "there is no such segment"
	}
	last := uint64(0)
	for i := range pack.Len() {
		one := pack.At(i)
		if len(one) < 8 {
			return cannotBeRead
		}
		number := binary.BigEndian.Uint64(one)
		attempt, outcome, err := record.DecodeAttempt(one[8:])
		webhook, unknown := segment.Recipient(number)
		switch {
		case i == 0 && bytes.Compare(k[8:], one[:8]) > 0 || number <= last:
			return "its attempts are not in their order"
		case err != nil || attempt.Number != 1:
			return "an attempt cannot be read, or is not a first one"
		case unknown != nil || number < segment.First:
			return fmt.Sprintf("there is no delivery %d", number)
		case !v.broken[string(bucketFresh)] && inBitmap(v.tx, bucketFresh, number):
			return fmt.Sprintf("delivery %d was attempted, and is pending as it was published", number)
		case outcome == webhooks.GiveUp && v.given(number, 1) && !v.hasFailed(number, webhook):
			return fmt.Sprintf("failed_deliveries does not have delivery %d", number)
		}
		last = number
	}
	return ""
}

// attempt checks a row of attempts or last_attempts.
func (v *rowChecker) attempt(k, value []byte) string {
	if len(k) != 12 {
		return "the key of the row is not two numbers"
	}
	number := binary.BigEndian.Uint64(k)
	webhook, what := v.recipient(number)
	if what != "" {
		return what
	}
	attempt, outcome, err := record.DecodeAttempt(value)
	switch {
	case err != nil:
		return cannotBeRead
	case attempt.Number != int(binary.BigEndian.Uint32(k[8:])):
		return "it is another attempt"
	case outcome == webhooks.GiveUp && v.given(number, attempt.Number) && !v.hasFailed(number, webhook):
		return "failed_deliveries does not have its delivery"
	}
	return ""
}

// given reports whether a delivery was given up by that attempt, and not attempted since.
func (v *rowChecker) given(number uint64, attempt int) bool {
	for _, bucket := range [][]byte{bucketAttempts, bucketLastAttempts} {
		if v.broken[string(bucket)] {
			return false
		}
		if k, _ := v.tx.Bucket(bucket).Cursor().Seek(attemptKey(number, attempt+1)); bytes.HasPrefix(k, record.NumberKey(number)) {
			return false
		}
	}
	return true
}

func (v *rowChecker) failed(k, value []byte) string {
	if len(k) < 9 || binary.BigEndian.Uint64(k)%record.MaxFailed != 0 {
		return "the key of the row is not a number and a webhook"
	}
	m, err := record.DecodeFailed(binary.BigEndian.Uint64(k), value)
	if err != nil {
		return cannotBeRead
	}
	what := ""
	m.Each(func(number uint64) bool {
		if number < v.first {
			return true // it is purged
		}
		if webhook, unknown := v.recipient(number); unknown != "" || !bytes.Equal(webhook, k[8:]) {
			what = fmt.Sprintf("there is no delivery %d to that webhook", number)
		}
		return what == ""
	})
	return what
}

// runs checks the index of the deliveries of a webhook. Its oldest run, and those before it, may
// be purged in part.
func (v *rowChecker) runs() {
	indexed := min(metaNumber(v.tx, keyRuns), v.last+1)
	var run uint64                // that is being read
	var found map[string][]uint64 // its deliveries whose rows did not come yet; nil before the first run
	oldest := true
	leave := func(next uint64) { // what is left, or not there at all
		for ; found != nil && run < min(next, indexed); run += runSize {
			for webhook, numbers := range found {
				if !oldest && !v.inErasure(numbers[0]) {
					v.problem(bucketRuns, runKey(run, webhook), "the row is missing")
				}
			}
			oldest = false
			clear(found)
			readRun(v.tx, run+runSize, "", found)
		}
		run = next
	}
	v.rows(bucketRuns, func(k, value []byte) string {
		if len(k) < 9 || binary.BigEndian.Uint64(k)%runSize != 0 {
			return "the key of the row is not a number and a webhook"
		}
		next, webhook := binary.BigEndian.Uint64(k), string(k[8:])
		if next >= indexed {
			return "it is of a run that is not indexed yet"
		}
		if leave(next); found == nil {
			found = make(map[string][]uint64)
			readRun(v.tx, run, "", found)
		}
		is := found[webhook]
		delete(found, webhook)
		numbers, err := record.DecodeRun(run, value)
		numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n < v.first })
		switch {
		case err != nil:
			return cannotBeRead
		case !slices.Equal(is, numbers):
			return "it has others than the events in the run say"
		}
		return ""
	})
	leave(indexed)
}
