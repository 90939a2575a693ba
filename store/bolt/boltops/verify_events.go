package boltops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/webhooks"
)

// An eventVerifier checks events, their deliveries and the indexes of both.
type eventVerifier struct {
	*verifier
	segments *eventlog.Segments
	first    uint64 // number; earlier events are purged
	last     uint64 // number
	idsFrom  uint64 // IDs of earlier events are purged
	idSecret eventlog.IDSecret
	idRuns   []uint64 // ascending

	indexed   uint64         // deliveries before this number are in an index of runs
	unindexed map[uint64]int // number of deliveries that are not in the index yet, by run
}

// number returns the number in 8 bytes, or 0.
func number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// run checks all buckets of events. If events cannot be read, nothing can be said about the rest.
func (v *eventVerifier) run() {
	if v.broken[string(schema.Events)] {
		return
	}
	before := len(v.report.Problems)
	v.indexed, v.unindexed = min(eventlog.Number(v.tx, schema.MetaRuns), v.tx.Bucket(schema.Events).Sequence()+1), make(map[uint64]int)
	v.segments, v.idsFrom = eventlog.NewSegments(v.tx), eventlog.Number(v.tx, schema.MetaIDsGone)
	copy(v.idSecret[:], v.tx.Bucket(schema.Meta).Get(schema.MetaIDSecret))
	v.loadIDRuns()
	v.eventRows()
	if len(v.report.Problems) > before {
		return
	}
	for _, t := range []table{
		{schema.Fresh, v.fresh}, {schema.Skipped, v.skipped}, {schema.Pending, v.pendingRow}, {schema.EventIDs, v.idRow},
		{schema.FirstAttempts, v.firstAttempts}, {schema.Attempts, v.attempt}, {schema.LastAttempts, v.attempt}, {schema.Failed, v.failed}, {schema.Runs, v.deliveryRun},
	} {
		v.rows(t.bucket, func(k, value []byte) string { return v.checkRow(&t, k, value) })
	}
	v.missingRuns()
}

// segmentAt returns the segment of that key, and a problem if there is none.
func (v *eventVerifier) segmentAt(key []byte) (s record.Segment, problem string) {
	s, err := record.DecodeSegment(key, v.tx.Bucket(schema.Events).Get(key))
	return s, unless(err == nil, "there is no such segment")
}

// recipient returns the webhook of a delivery, and a problem if there is none.
func (v *eventVerifier) recipient(number uint64) (webhook []byte, problem string) {
	segment, err := v.segments.At(number)
	if err == nil {
		webhook, err = segment.Recipient(number)
	}
	return webhook, unless(err == nil, "there is no such delivery")
}

// eventRows checks the segments and the bodies of their events.
func (v *eventVerifier) eventRows() {
	bodiesGone := eventlog.Number(v.tx, schema.MetaBodiesGone)
	var segment record.Segment
	var bodiless []byte // key of a segment whose bodies come next
	end := func() {
		if bodiless == nil || segment.Last < bodiesGone {
			return
		}
		if event, err := segment.Event(0); err != nil || !event.NoBody { // imported without a body
			v.problem(schema.Events, bodiless, "the bodies of its events are missing")
		}
	}
	v.rows(schema.Events, func(k, value []byte) string {
		switch {
		case eventlog.IsDivider(k, value):
			return ""
		case len(k) == 9 && k[8] == 'b':
			bodies, err := record.DecodePack(value)
			whole := err == nil && (bodiless == nil || isWhole(bodies, segment.Len()))
			ofSegment := bytes.Equal(k[:8], bodiless) || v.last == 0
			bodiless = nil
			if !ofSegment {
				return "there is no segment of these bodies"
			}
			return unless(whole, "the bodies cannot be read, or are not as many as the events")
		}
		end()
		bodiless = nil
		var err error
		if segment, err = record.DecodeSegment(k, value); err != nil {
			return cannotBeRead
		}
		if segment.First <= v.last {
			return "its numbers are those of the segment before it"
		}
		if v.first == 0 {
			v.first = segment.First
		}
		v.last, bodiless = segment.Last, bytes.Clone(k)
		return v.eventsOf(&segment)
	})
	end()
	sequence := v.tx.Bucket(schema.Events).Sequence()
	if v.last > sequence {
		v.report.add(Problem{Bucket: string(schema.Events), What: fmt.Sprintf("there is number %d, and the last one given is %d", v.last, sequence)})
	}
	if v.last = sequence; v.first == 0 { // all events are purged
		v.first = sequence + 1
	}
}

// isWhole reports whether a pack has n records that can be read.
func isWhole(pack record.Pack, n int) bool {
	for i := range pack.Len() {
		if pack.At(i) == nil {
			return false
		}
	}
	return pack.Len() == n
}

// eventsOf checks the events of a segment, and that their IDs are found.
func (v *eventVerifier) eventsOf(s *record.Segment) string {
	if s.Len() == 0 {
		return cannotBeRead
	}
	for i := range s.Len() {
		event, err := s.Event(i)
		n := s.Number(i)
		if err != nil || n == 0 || event.ID == "" || event.Account == "" {
			return "an event cannot be read"
		}
		next, erasing := n+1, v.isErasing(event.Account)
		for number, webhook := range s.Recipients(i) {
			if next = number + 1; len(webhook) == 0 {
				return "a delivery is for no webhook"
			}
			if number < v.indexed && !erasing {
				v.unindexed[number/eventlog.RunSize*eventlog.RunSize]++
			}
		}
		if next > s.End(i) { // less where an account was erased
			return "the deliveries of an event are not as many as their numbers"
		}
		v.report.Events++
		if !event.Forgotten && n >= v.idsFrom && !v.findsID(&event, n) {
			return fmt.Sprintf("event_ids does not have event %d", n)
		}
	}
	return ""
}

func (v *eventVerifier) loadIDRuns() {
	if v.broken[string(schema.EventIDs)] {
		return
	}
	c := v.tx.Bucket(schema.EventIDs).Cursor()
	for k, _ := c.First(); len(k) == eventlog.IDRowSize; k, _ = c.Seek(record.NumberKey(eventlog.IDRunOf(k) + 1)) {
		v.idRuns = append(v.idRuns, eventlog.IDRunOf(k))
	}
}

// findsID reports whether the ID of an event is found in the run that should have it.
func (v *eventVerifier) findsID(event *record.Event, n uint64) bool {
	i, _ := slices.BinarySearch(v.idRuns, n)
	if i == len(v.idRuns) || v.broken[string(schema.EventIDs)] {
		return true // it is in no run yet
	}
	rows := v.tx.Bucket(schema.EventIDs).Cursor()
	found, err := eventlog.AppendFromRun(rows, nil, v.idRuns[i], v.idSecret.KeyOf(event.Account, event.ID))
	return err != nil || slices.Contains(found, n) // a damaged row has a problem of its own
}

// idRow checks a row of IDs. [eventVerifier.findsID] checks that it finds its events.
func (v *eventVerifier) idRow(_ *verifier, k, value []byte) ([]ref, string) {
	entries, err := record.AppendIDEntries(nil, value)
	return nil, unless(err == nil && len(entries) > 0 && len(k) == eventlog.IDRowSize && eventlog.IDRunOf(k) <= v.last, cannotBeRead)
}

// bits checks a set of deliveries of a segment, and calls visit with each of them.
func (v *eventVerifier) bits(k, value []byte, visit func(number uint64, webhook []byte)) (problem string) {
	m, err := record.DecodeBitmap(value)
	if err != nil || len(k) != 8 {
		return cannotBeRead
	}
	segment, problem := v.segmentAt(k)
	switch {
	case problem != "":
		return problem
	case m.First != segment.First || m.IsEmpty():
		return "does not begin where the segment does, or is empty"
	}
	left := 0
	m.Each(func(uint64) bool { left++; return true })
	for i := range segment.Len() {
		for number, webhook := range segment.Recipients(i) {
			if m.Has(number) {
				left--
				visit(number, webhook)
			}
		}
	}
	return unless(left == 0, "has numbers that are no deliveries")
}

// isFresh reports whether a delivery is pending as it was published.
func (v *eventVerifier) isFresh(number uint64) bool {
	return !v.broken[string(schema.Fresh)] && eventlog.InBitmap(v.tx, schema.Fresh, number)
}

// countPending counts a delivery if its webhook exists.
func (v *eventVerifier) countPending(webhook []byte) {
	if account, ok := v.get(schema.WebhookIDs, webhook); ok && account != nil {
		v.report.Pending++
	}
}

func (v *eventVerifier) fresh(_ *verifier, k, value []byte) ([]ref, string) {
	return nil, v.bits(k, value, func(_ uint64, webhook []byte) { v.countPending(webhook) })
}

func (v *eventVerifier) skipped(_ *verifier, k, value []byte) (refs []ref, problem string) {
	both := ""
	problem = v.bits(k, value, func(number uint64, webhook []byte) {
		if v.isFresh(number) {
			both = fmt.Sprintf("delivery %d is skipped, and pending", number)
		}
		if number < v.indexed {
			refs = v.appendFailed(refs, number, webhook)
		}
	})
	if problem == "" {
		problem = both
	}
	return refs, problem
}

// appendFailed appends a ref to the index row of a failed delivery, unless its account is being erased.
func (v *eventVerifier) appendFailed(refs []ref, number uint64, webhook []byte) []ref {
	if v.isErasingEventOf(number) {
		return refs
	}
	first := number / record.MaxFailed * record.MaxFailed
	return append(refs, ref{schema.Failed, eventlog.FailedKey(number, string(webhook)), func(value []byte) bool {
		m, err := record.DecodeFailed(first, value)
		return err != nil || m.Has(number)
	}, fmt.Sprintf("failed_deliveries does not have delivery %d", number)})
}

// isErasingEventOf reports whether a delivery is of an account that is being erased. The index rows of such an
// account are deleted with the first of its events in them.
func (v *eventVerifier) isErasingEventOf(number uint64) bool {
	segment, err := v.segments.At(number)
	if err != nil {
		return false
	}
	event, err := segment.Event(segment.Index(number))
	return err == nil && v.isErasing(event.Account)
}

func (v *eventVerifier) pendingRow(_ *verifier, k, value []byte) ([]ref, string) {
	if len(k) != 8 {
		return nil, wantNumber
	}
	webhook, problem := v.recipient(number(k))
	if problem != "" {
		return nil, problem
	}
	v.countPending(webhook)
	if _, err := record.DecodePending(value); err != nil {
		return nil, cannotBeRead
	}
	return nil, unless(!v.isFresh(number(k)), "is pending as it was published, too")
}

func (v *eventVerifier) firstAttempts(_ *verifier, k, value []byte) (refs []ref, problem string) {
	if len(k) != 16 {
		return nil, "malformed key: want two numbers"
	}
	pack, err := record.DecodePack(value)
	if err != nil || pack.Len() == 0 {
		return nil, cannotBeRead
	}
	segment, problem := v.segmentAt(k[:8])
	last := number(k[8:]) - 1 // the pack begins there, or later
	for i := 0; i < pack.Len() && problem == ""; i++ {
		one := pack.At(i)
		if len(one) < 8 {
			return nil, cannotBeRead
		}
		n := number(one[:8])
		switch {
		case n <= last:
			return nil, "its attempts are not in order"
		case n < segment.First || n > segment.Last:
			return nil, fmt.Sprintf("delivery %d is not of that segment", n)
		case v.isFresh(n):
			return nil, fmt.Sprintf("delivery %d was attempted, and is pending as it was published", n)
		}
		last = n
		refs, problem = v.attemptOf(refs, n, 1, one[8:])
	}
	return refs, problem
}

// attempt checks a row of the bucket attempts or last_attempts.
func (v *eventVerifier) attempt(_ *verifier, k, value []byte) ([]ref, string) {
	if len(k) != 12 {
		return nil, "malformed key: want two numbers"
	}
	return v.attemptOf(nil, number(k[:8]), int(binary.BigEndian.Uint32(k[8:])), value)
}

// attemptOf checks an attempt, and appends the refs of its record.
func (v *eventVerifier) attemptOf(refs []ref, number uint64, want int, value []byte) ([]ref, string) {
	webhook, problem := v.recipient(number)
	if problem != "" {
		return nil, problem
	}
	attempt, outcome, err := record.DecodeAttempt(value)
	if err != nil || attempt.Number != want {
		return nil, cannotBeRead
	}
	if outcome == webhooks.GiveUp && v.isLast(number, want) {
		refs = v.appendFailed(refs, number, webhook)
	}
	return refs, ""
}

// isLast reports whether an attempt is the last one at a delivery.
func (v *eventVerifier) isLast(number uint64, attempt int) bool {
	next := eventlog.AttemptKey(number, attempt+1)
	for _, bucket := range [][]byte{schema.Attempts, schema.LastAttempts} {
		if v.broken[string(bucket)] {
			return false
		}
		if k, _ := v.tx.Bucket(bucket).Cursor().Seek(next); bytes.HasPrefix(k, record.NumberKey(number)) {
			return false
		}
	}
	return true
}

func (v *eventVerifier) failed(_ *verifier, k, value []byte) (refs []ref, problem string) {
	if len(k) < 9 || number(k[:8])%record.MaxFailed != 0 {
		return nil, "malformed key: want a number and a webhook"
	}
	m, err := record.DecodeFailed(number(k[:8]), value)
	if err != nil {
		return nil, cannotBeRead
	}
	m.Each(func(n uint64) bool {
		problem = v.deliveryTo(n, k[8:])
		return problem == ""
	})
	return nil, problem
}

// deliveryRun checks a row of the index of the deliveries of webhooks.
func (v *eventVerifier) deliveryRun(_ *verifier, k, value []byte) ([]ref, string) {
	run := number(k[:min(8, len(k))])
	numbers, err := record.DecodeRun(run, value)
	switch {
	case len(k) < 9 || run%eventlog.RunSize != 0:
		return nil, "malformed key: want a number and a webhook"
	case run >= v.indexed:
		return nil, "is of a run that is not indexed yet"
	case err != nil:
		return nil, cannotBeRead
	}
	for _, n := range numbers {
		if problem := v.deliveryTo(n, k[8:]); problem != "" {
			return nil, problem
		}
		if n >= v.first && !v.isErasingEventOf(n) {
			v.unindexed[run]--
		}
	}
	return nil, ""
}

// missingRuns reports the runs whose index lacks deliveries. The oldest run may be purged in part.
func (v *eventVerifier) missingRuns() {
	for run := v.first/eventlog.RunSize*eventlog.RunSize + eventlog.RunSize; run < v.indexed && !v.broken[string(schema.Runs)]; run += eventlog.RunSize {
		if n := v.unindexed[run]; n > 0 {
			v.problem(schema.Runs, record.NumberKey(run), fmt.Sprintf("the rows of %d deliveries of this run are missing", n))
		}
	}
}

// deliveryTo returns a problem if a delivery is not to the webhook, and is not purged.
func (v *eventVerifier) deliveryTo(number uint64, webhook []byte) (problem string) {
	to, unknown := v.recipient(number)
	return unless(number < v.first || unknown == "" && bytes.Equal(to, webhook), fmt.Sprintf("there is no delivery %d to that webhook", number))
}
