package boltops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// eventState is the part of a [verifier]'s state that concerns events.
type eventState struct {
	segments *eventlog.Segments
	first    uint64 // number of the first event; earlier events are purged
	last     uint64 // last number assigned
	idsFrom  uint64 // IDs of events with lower numbers have been purged
	idSecret eventlog.IDSecret
	idRuns   []uint64 // ascending

	webhookRuns, eventRuns runIndex
}

// A runIndex holds the state while Verify checks one of two indexes: schema.Runs, which lists the
// deliveries of each webhook, or schema.EventRuns, which lists the events of each account and type.
// Each row of an index lists numbers within one run.
type runIndex struct {
	end      uint64         // all lower numbers must be indexed
	unlisted map[uint64]int // by run: count of numbers missing from the rows
}

func (v *verifier) newRunIndex(end []byte) runIndex {
	return runIndex{min(eventlog.Number(v.tx, end), v.tx.Bucket(schema.Events).Sequence()+1), make(map[uint64]int)}
}

// count updates unlisted: by is 1 for a number that the index must contain, and -1 for a number
// that a row of the index contains.
func (x *runIndex) count(number uint64, by int) {
	if number < x.end {
		x.unlisted[number/eventlog.RunSize*eventlog.RunSize] += by
	}
}

// eventTables describes the buckets of events, except schema.Events itself.
var eventTables = []table{
	{bucket: schema.Fresh, key: exactly(8, "a number"), check: (*verifier).fresh},
	{bucket: schema.Skipped, key: exactly(8, "a number"), check: (*verifier).skipped},
	{bucket: schema.Pending, key: exactly(8, "a number"), check: (*verifier).pendingRow},
	{bucket: schema.EventIDs, key: exactly(eventlog.IDRowSize, "numbers of a run and row"), check: (*verifier).idRow},
	{bucket: schema.FirstAttempts, key: exactly(16, "two numbers"), check: (*verifier).firstAttempts},
	{bucket: schema.Attempts, key: exactly(12, "two numbers"), check: (*verifier).attempt},
	{bucket: schema.LastAttempts, key: exactly(12, "two numbers"), check: (*verifier).attempt},
	{bucket: schema.Failed, key: numberAnd(record.MaxFailed, "webhook"), check: (*verifier).failed},
	{bucket: schema.Runs, key: numberAnd(eventlog.RunSize, "webhook"), check: (*verifier).webhookRun},
	{bucket: schema.EventRuns, key: numberAnd(eventlog.RunSize, "account and type"), check: (*verifier).eventRun},
}

// numberAnd returns a check for keys that begin with an 8-byte number divisible by multiple,
// followed by more bytes.
func numberAnd(multiple uint64, what string) func([]byte) string {
	return func(k []byte) string {
		return unless(len(k) >= 9 && record.Number(k[:8])%multiple == 0, "malformed key: want a number and "+what)
	}
}

// eventBuckets checks all buckets of events. If schema.Events has a problem, it does not check the
// others.
func (v *verifier) eventBuckets() {
	if v.broken[string(schema.Events)] {
		return
	}
	before := len(v.report.Problems)
	v.webhookRuns, v.eventRuns = v.newRunIndex(schema.MetaRuns), v.newRunIndex(schema.MetaEventRuns)
	v.segments, v.idsFrom = eventlog.NewSegments(v.tx), eventlog.Number(v.tx, schema.MetaIDsGone)
	copy(v.idSecret[:], v.tx.Bucket(schema.Meta).Get(schema.MetaIDSecret))
	v.loadIDRuns()
	v.eventRows()
	if len(v.report.Problems) > before {
		return
	}
	v.check(eventTables)
	v.missingRows(schema.Runs, &v.webhookRuns)
	v.missingRows(schema.EventRuns, &v.eventRuns)
}

// segmentAt returns the segment with that key, or a problem.
func (v *verifier) segmentAt(key []byte) (s record.Segment, problem string) {
	s, err := record.DecodeSegment(key, v.tx.Bucket(schema.Events).Get(key))
	return s, unless(err == nil, "no such segment")
}

// recipient returns the webhook of the delivery with that number, or a problem.
func (v *verifier) recipient(number uint64) (webhook []byte, problem string) {
	segment, err := v.segments.At(number)
	if err == nil {
		webhook, err = segment.Recipient(number)
	}
	return webhook, unless(err == nil, "no such delivery")
}

// eventRows checks the segments, and the bodies of their events.
func (v *verifier) eventRows() {
	bodiesGone := eventlog.Number(v.tx, schema.MetaBodiesGone)
	var segment record.Segment
	var bodiless []byte // key of the last segment, while its bodies are expected next
	end := func() {
		if bodiless == nil || segment.Last < bodiesGone {
			return
		}
		if event, err := segment.Event(0); err != nil || !event.NoBody { // imported without body
			v.problem(schema.Events, bodiless, "bodies of the segment's events are missing")
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
				return "no segment has these bodies"
			}
			return unless(whole, "bodies are unreadable, or their number differs from the events'")
		}
		end()
		bodiless = nil
		var err error
		if segment, err = record.DecodeSegment(k, value); err != nil {
			return cannotBeRead
		}
		if segment.First <= v.last {
			return "numbers overlap with the previous segment"
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
		v.report.add(Problem{Bucket: string(schema.Events), What: fmt.Sprintf("number %d exists, but the last assigned number is %d", v.last, sequence)})
	}
	if v.last = sequence; v.first == 0 { // all events are purged
		v.first = sequence + 1
	}
}

// isWhole reports whether a pack has n readable records.
func isWhole(pack record.Pack, n int) bool {
	for i := range pack.Len() {
		if pack.At(i) == nil {
			return false
		}
	}
	return pack.Len() == n
}

// eventsOf checks the events of a segment, and that each event is found by its ID.
func (v *verifier) eventsOf(s *record.Segment) string {
	if s.Len() == 0 {
		return cannotBeRead
	}
	for i := range s.Len() {
		event, err := s.Event(i)
		n := s.Number(i)
		if err != nil || n == 0 || event.ID == "" || event.Account == "" {
			return "unreadable event"
		}
		next, erasing := n+1, v.isErasing(event.Account)
		for number, webhook := range s.Recipients(i) {
			if next = number + 1; len(webhook) == 0 {
				return "delivery without a webhook"
			}
			if !erasing {
				v.webhookRuns.count(number, 1)
			}
		}
		if next > s.End(i) { // after an erasure, there may be fewer deliveries than numbers
			return "an event's deliveries do not match their numbers"
		}
		v.report.Events++
		if !erasing {
			v.eventRuns.count(n, 1)
		}
		if !event.Forgotten && n >= v.idsFrom && !v.findsID(&event, n) {
			return fmt.Sprintf("event %d is missing from event_ids", n)
		}
	}
	return ""
}

func (v *verifier) loadIDRuns() {
	if v.broken[string(schema.EventIDs)] {
		return
	}
	c := v.tx.Bucket(schema.EventIDs).Cursor()
	for k, _ := c.First(); len(k) == eventlog.IDRowSize; k, _ = c.Seek(record.NumberKey(eventlog.IDRunOf(k) + 1)) {
		v.idRuns = append(v.idRuns, eventlog.IDRunOf(k))
	}
}

// findsID reports whether the run that should contain the event's ID contains it.
func (v *verifier) findsID(event *record.Event, n uint64) bool {
	i, _ := slices.BinarySearch(v.idRuns, n)
	if i == len(v.idRuns) || v.broken[string(schema.EventIDs)] {
		return true // the ID is in no run yet
	}
	rows := v.tx.Bucket(schema.EventIDs).Cursor()
	found, err := eventlog.AppendFromRun(rows, nil, v.idRuns[i], v.idSecret.KeyOf(event.Account, event.ID))
	return err != nil || slices.Contains(found, n) // a damaged row is reported separately
}

// idRow checks a row of IDs. [verifier.findsID] checks whether its IDs lead to their events.
func (v *verifier) idRow(k, value []byte) ([]ref, string) {
	entries, err := record.AppendIDEntries(nil, value)
	return nil, unless(err == nil && len(entries) > 0 && eventlog.IDRunOf(k) <= v.last, cannotBeRead)
}

// bits checks a bitmap of a segment's deliveries, and calls visit with each delivery in it.
func (v *verifier) bits(k, value []byte, visit func(number uint64, webhook []byte)) (problem string) {
	m, err := record.DecodeBitmap(value)
	if err != nil {
		return cannotBeRead
	}
	segment, problem := v.segmentAt(k)
	switch {
	case problem != "":
		return problem
	case m.First != segment.First || m.IsEmpty():
		return "starts at another number than its segment, or is empty"
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
	return unless(left == 0, "contains numbers that are not deliveries")
}

// isFresh reports whether a delivery has been pending since its publication, without an attempt.
func (v *verifier) isFresh(number uint64) bool {
	return !v.broken[string(schema.Fresh)] && eventlog.InBitmap(v.tx, schema.Fresh, number)
}

// countPending counts a delivery if its webhook exists.
func (v *verifier) countPending(webhook []byte) {
	if account, ok := v.get(schema.WebhookIDs, webhook); ok && account != nil {
		v.report.Pending++
	}
}

func (v *verifier) fresh(k, value []byte) ([]ref, string) {
	return nil, v.bits(k, value, func(_ uint64, webhook []byte) { v.countPending(webhook) })
}

func (v *verifier) skipped(k, value []byte) (refs []ref, problem string) {
	both := ""
	problem = v.bits(k, value, func(number uint64, webhook []byte) {
		if v.isFresh(number) {
			both = fmt.Sprintf("delivery %d is both skipped and pending", number)
		}
		if number < v.webhookRuns.end {
			refs = v.appendFailed(refs, number, webhook)
		}
	})
	if problem == "" {
		problem = both
	}
	return refs, problem
}

// appendFailed appends a ref to the index row of a failed delivery, unless its account is being
// erased.
func (v *verifier) appendFailed(refs []ref, number uint64, webhook []byte) []ref {
	if v.isErasingEventOf(number) {
		return refs
	}
	first := number / record.MaxFailed * record.MaxFailed
	return append(refs, ref{schema.Failed, eventlog.FailedKey(number, string(webhook)), func(value []byte) bool {
		m, err := record.DecodeFailed(first, value)
		return err != nil || m.Has(number)
	}, fmt.Sprintf("delivery %d is missing from failed_deliveries", number)})
}

// eventOf returns the event to which a number belongs. The number is that of the event or of one of
// its deliveries. own is the event's own number.
func (v *verifier) eventOf(number uint64) (event record.Event, own uint64, ok bool) {
	segment, err := v.segments.At(number)
	if err != nil {
		return event, 0, false
	}
	i := segment.Index(number)
	event, err = segment.Event(i)
	return event, segment.Number(i), err == nil
}

// isErasingEventOf reports whether the event or delivery with that number belongs to an account
// under erasure. An index row of such an account is deleted together with the first of its events.
func (v *verifier) isErasingEventOf(number uint64) bool {
	event, _, ok := v.eventOf(number)
	return ok && v.isErasing(event.Account)
}

func (v *verifier) pendingRow(k, value []byte) ([]ref, string) {
	webhook, problem := v.recipient(record.Number(k))
	if problem != "" {
		return nil, problem
	}
	v.countPending(webhook)
	if _, err := record.DecodePending(value); err != nil {
		return nil, cannotBeRead
	}
	return nil, unless(!v.isFresh(record.Number(k)), "is also in fresh")
}

func (v *verifier) firstAttempts(k, value []byte) (refs []ref, problem string) {
	pack, err := record.DecodePack(value)
	if err != nil || pack.Len() == 0 {
		return nil, cannotBeRead
	}
	segment, problem := v.segmentAt(k[:8])
	last := record.Number(k[8:]) - 1 // the pack may begin with a greater number
	for i := 0; i < pack.Len() && problem == ""; i++ {
		one := pack.At(i)
		if len(one) < 8 {
			return nil, cannotBeRead
		}
		n := record.Number(one[:8])
		switch {
		case n <= last:
			return nil, "attempts are out of order"
		case n < segment.First || n > segment.Last:
			return nil, fmt.Sprintf("delivery %d is not in the segment", n)
		case v.isFresh(n):
			return nil, fmt.Sprintf("delivery %d has attempts, but is in fresh", n)
		}
		last = n
		refs, problem = v.attemptOf(refs, n, 1, one[8:])
	}
	return refs, problem
}

// attempt checks a row of the bucket attempts or last_attempts.
func (v *verifier) attempt(k, value []byte) ([]ref, string) {
	return v.attemptOf(nil, record.Number(k[:8]), int(binary.BigEndian.Uint32(k[8:])), value)
}

// attemptOf checks an attempt at a delivery, and appends refs to the rows that must exist for it.
func (v *verifier) attemptOf(refs []ref, number uint64, want int, value []byte) ([]ref, string) {
	webhook, problem := v.recipient(number)
	if problem != "" {
		return nil, problem
	}
	attempt, outcome, err := record.DecodeAttempt(value)
	if err != nil || attempt.Number != want {
		return nil, cannotBeRead
	}
	if outcome == driver.GiveUp && v.isLast(number, want) {
		refs = v.appendFailed(refs, number, webhook)
	}
	return refs, ""
}

// isLast reports whether an attempt is the last one at a delivery.
func (v *verifier) isLast(number uint64, attempt int) bool {
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

func (v *verifier) failed(k, value []byte) (refs []ref, problem string) {
	m, err := record.DecodeFailed(record.Number(k[:8]), value)
	if err != nil {
		return nil, cannotBeRead
	}
	m.Each(func(n uint64) bool {
		problem = v.deliveryTo(n, k[8:])
		return problem == ""
	})
	return nil, problem
}

func (v *verifier) webhookRun(k, value []byte) ([]ref, string) {
	return nil, v.runRow(&v.webhookRuns, k, value, func(n uint64) string { return v.deliveryTo(n, k[8:]) })
}

func (v *verifier) eventRun(k, value []byte) ([]ref, string) {
	return nil, v.runRow(&v.eventRuns, k, value, func(n uint64) string {
		event, own, ok := v.eventOf(n)
		is := ok && own == n && bytes.Equal(k[8:], record.Prefixed(event.Account, string(event.Type)))
		return unless(n < v.first || is, fmt.Sprintf("no event %d of this account and type", n))
	})
}

// runRow checks a row of a run index. wrong returns the problem of a number in the row, or "".
func (v *verifier) runRow(index *runIndex, k, value []byte, wrong func(n uint64) (problem string)) (problem string) {
	begin := record.Number(k[:8])
	numbers, err := record.DecodeRun(begin, value)
	switch {
	case begin >= index.end:
		return "belongs to a run that is not indexed yet"
	case err != nil:
		return cannotBeRead
	}
	for _, n := range numbers {
		if problem := wrong(n); problem != "" {
			return problem
		}
		if n >= v.first && !v.isErasingEventOf(n) {
			index.count(n, -1)
		}
	}
	return ""
}

// missingRows reports the runs with numbers that the index lacks. It does not check the oldest run,
// which may be partly purged.
func (v *verifier) missingRows(bucket []byte, index *runIndex) {
	for run := v.first/eventlog.RunSize*eventlog.RunSize + eventlog.RunSize; run < index.end && !v.broken[string(bucket)]; run += eventlog.RunSize {
		if n := index.unlisted[run]; n > 0 {
			v.problem(bucket, record.NumberKey(run), fmt.Sprintf("rows for %d numbers of this run are missing", n))
		}
	}
}

// deliveryTo returns a problem unless the delivery goes to the webhook, or has been purged.
func (v *verifier) deliveryTo(number uint64, webhook []byte) (problem string) {
	to, unknown := v.recipient(number)
	return unless(number < v.first || unknown == "" && bytes.Equal(to, webhook), fmt.Sprintf("no delivery %d to this webhook", number))
}
