package boltops

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// segmentTables describes the buckets whose rows belong to a segment of events. They are sorted by
// number like the segments, so that all of them can be read together.
var segmentTables = []table{
	{bucket: schema.Fresh, key: hasLength(8), row: (*verifier).fresh},
	{bucket: schema.Skipped, key: hasLength(8), row: (*verifier).skipped},
	{bucket: schema.Pending, key: hasLength(8), row: (*verifier).pendingRow},
	{bucket: schema.FirstAttempts, key: hasLength(16), row: (*verifier).firstAttempts},
	{bucket: schema.Attempts, key: hasLength(12), row: (*verifier).attempt},
	{bucket: schema.LastAttempts, key: hasLength(12), row: (*verifier).attempt},
}

// eventState is the part of a [verifier]'s state that concerns events.
type eventState struct {
	first   uint64 // number of the first event; earlier events are purged
	last    uint64 // last number assigned
	erasing bool   // whether an erasure is in progress
	found   *eventlog.Segments
	runs    map[string]runIndex // by bucket: schema.Runs and schema.EventRuns

	idsFrom  uint64 // IDs of events with lower numbers have been purged
	idSecret eventlog.IDSecret
	idRuns   []uint64 // ascending

	segment    record.Segment // the current segment
	bodiless   []byte         // key of the current segment, while its bodies are expected next
	deliveries []delivery     // of the current segment, by ascending numbers
	next       [6]position    // in segmentTables
}

// A delivery is the state of a delivery on which the index of failed deliveries depends.
type delivery struct {
	number  uint64
	webhook []byte
	attempt int  // number of the last attempt
	failed  bool // whether schema.Failed must list it
	fresh   bool // pending as published
}

// A runIndex is the state of an index whose rows list numbers: schema.Runs lists the deliveries of
// each webhook, and schema.EventRuns the events of each account and type.
type runIndex struct {
	end   uint64 // all lower numbers are indexed
	kept  uint64 // all numbers from here on are indexed
	first []byte // key of the first row; earlier rows may have been purged
}

func (v *verifier) newRunIndex(bucket, end []byte, kept uint64) runIndex {
	x := runIndex{end: min(eventlog.Number(v.tx, end), v.last+1), kept: kept}
	if !v.broken[string(bucket)] {
		x.first, _ = v.tx.Bucket(bucket).Cursor().First()
	}
	return x
}

// firstBody returns the last number of the first segment with bodies. Attempts at these events, and so
// their rows in schema.Runs, are kept at least as long as bodies.
func (v *verifier) firstBody() uint64 {
	if !v.broken[string(schema.Events)] {
		c := v.tx.Bucket(schema.Events).Cursor()
		for k, _ := c.Seek(record.NumberKey(eventlog.Number(v.tx, schema.MetaBodiesGone))); k != nil; k, _ = c.Next() {
			if len(k) == 9 && k[8] == 'b' {
				return record.Number(k[:8])
			}
		}
	}
	return math.MaxUint64
}

// readEvents checks the segments with their bodies, and the rows that belong to them.
func (v *verifier) readEvents(events *table) {
	erasing := v.broken[string(schema.Erasures)]
	if !erasing {
		erasure, _ := v.tx.Bucket(schema.Erasures).Cursor().First()
		erasing = erasure != nil
	}
	v.eventState = eventState{
		last: v.tx.Bucket(schema.Events).Sequence(), found: eventlog.NewSegments(v.tx),
		erasing: erasing, idsFrom: eventlog.Number(v.tx, schema.MetaIDsGone),
	}
	v.runs = map[string]runIndex{
		string(schema.Runs):      v.newRunIndex(schema.Runs, schema.MetaRuns, v.firstBody()),
		string(schema.EventRuns): v.newRunIndex(schema.EventRuns, schema.MetaEventRuns, 0),
	}
	copy(v.idSecret[:], v.tx.Bucket(schema.Meta).Get(schema.MetaIDSecret))
	if !v.broken[string(schema.EventIDs)] {
		c := v.tx.Bucket(schema.EventIDs).Cursor()
		for k, _ := c.First(); len(k) == eventlog.IDRowSize; k, _ = c.Seek(record.NumberKey(eventlog.IDRunOf(k) + 1)) {
			v.idRuns = append(v.idRuns, eventlog.IDRunOf(k))
		}
	}
	v.rows(events)
	v.endSegment()
	v.segment = record.Segment{}
	v.readSegmentTables(math.MaxUint64) // the remaining rows belong to no segment
	if v.first == 0 {                   // all events are purged
		v.first = v.last + 1
	}
}

// eventRow checks a segment, the bodies of its events, or a divider.
func (v *verifier) eventRow(k, value []byte) string {
	switch {
	case eventlog.IsDivider(k, value):
		return ""
	case len(k) == 9 && k[8] == 'b':
		bodies, err := record.DecodePack(value)
		whole := err == nil && (v.bodiless == nil || isWhole(bodies, v.segment.Len()))
		ofSegment := bytes.Equal(k[:8], v.bodiless) || v.segment.Last == 0
		v.bodiless = nil
		if !ofSegment {
			return "no segment has these bodies"
		}
		return unless(whole, "bodies are unreadable, or their number differs from the events'")
	}
	v.endSegment()
	before := v.segment.Last
	var err error
	v.segment, err = record.DecodeSegment(k, value)
	switch {
	case err != nil || v.segment.Len() == 0:
		return unreadable
	case v.segment.First <= before || v.segment.Last > v.last:
		return "numbers overlap with the previous segment, or were never assigned"
	}
	if v.bodiless = bytes.Clone(k); v.first == 0 {
		v.first = v.segment.First
	}
	for i := range v.segment.Len() {
		if problem := v.event(i); problem != "" {
			return problem
		}
	}
	v.readSegmentTables(v.segment.Last)
	return ""
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

// event checks the event at index i of the current segment, and that it is found by its ID.
func (v *verifier) event(i int) (problem string) {
	event, err := v.segment.Event(i)
	n := v.segment.Number(i)
	if err != nil || n == 0 || event.ID == "" || event.Account == "" {
		return "unreadable event"
	}
	next, erasing := n+1, v.isErasing(event.Account)
	for number, webhook := range v.segment.Recipients(i) {
		if next = number + 1; len(webhook) == 0 {
			return "delivery without a webhook"
		}
		v.deliveries = append(v.deliveries, delivery{number: number, webhook: webhook})
		if !erasing {
			v.wantNumber(schema.Runs, number, webhook)
		}
	}
	if next > v.segment.End(i) { // after an erasure, there may be fewer deliveries than numbers
		return "an event's deliveries do not match their numbers"
	}
	v.report.Events++
	if !erasing {
		v.wantNumber(schema.EventRuns, n, record.Prefixed(event.Account, string(event.Type)))
	}
	at, _ := slices.BinarySearch(v.idRuns, n)
	if event.Forgotten || n < v.idsFrom || at == len(v.idRuns) {
		return "" // the ID is purged, or in no run yet
	}
	// Runs may also contain the IDs of erased events. A damaged row is reported separately.
	found, err := eventlog.AppendFromRun(v.tx.Bucket(schema.EventIDs).Cursor(), nil, v.idRuns[at], v.idSecret.KeyOf(event.Account, event.ID))
	return unless(err != nil || slices.Contains(found, n), fmt.Sprintf("event %d is missing from %s", n, schema.EventIDs))
}

// wantNumber requires a number in the row of a run index whose key ends in tail.
func (v *verifier) wantNumber(bucket []byte, number uint64, tail []byte) {
	x := v.runs[string(bucket)]
	row := append(record.NumberKey(number/eventlog.RunSize*eventlog.RunSize), tail...)
	if number < x.end && (number >= x.kept || x.first != nil && bytes.Compare(row, x.first) >= 0) {
		v.want(bucket, row, record.NumberKey(number))
	}
}

// A position is the next row to read in a bucket.
type position struct {
	cursor   *bbolt.Cursor
	k, value []byte
}

// readSegmentTables checks the rows of segmentTables up to a number, unless a segment is damaged.
func (v *verifier) readSegmentTables(last uint64) {
	if v.damaged[string(schema.Events)] {
		return
	}
	for i := range segmentTables {
		t, p := &segmentTables[i], &v.next[i]
		if v.broken[string(t.bucket)] {
			continue
		}
		if p.cursor == nil {
			p.cursor = v.tx.Bucket(t.bucket).Cursor()
			p.k, p.value = p.cursor.First()
		}
		for ; p.k != nil && (len(p.k) < 8 || record.Number(p.k[:8]) <= last); p.k, p.value = p.cursor.Next() {
			v.checkRow(t, p.k, p.value)
		}
	}
}

// endSegment completes the check of the current segment.
func (v *verifier) endSegment() {
	if v.bodiless != nil && v.segment.Last >= eventlog.Number(v.tx, schema.MetaBodiesGone) {
		if event, err := v.segment.Event(0); err != nil || !event.NoBody { // imported without body
			v.problem(schema.Events, v.bodiless, "bodies of the segment's events are missing")
		}
	}
	isKnown := !v.broken[string(schema.Attempts)] && !v.broken[string(schema.LastAttempts)]
	for _, d := range v.deliveries {
		if !d.failed || !isKnown || v.isErasingEventOf(d.number) {
			continue
		}
		row := eventlog.FailedKey(d.number, string(d.webhook))
		value, ok := v.get(schema.Failed, row)
		m, err := record.DecodeFailed(record.Number(row[:8]), value)
		if ok && err == nil && !m.Has(d.number) { // a damaged row is reported separately
			v.problem(schema.Failed, row, fmt.Sprintf("delivery %d is missing", d.number))
		}
	}
	v.bodiless, v.deliveries = nil, v.deliveries[:0]
}

// delivery returns the delivery with that number in the current segment, or nil.
func (v *verifier) delivery(number uint64) *delivery {
	i := sort.Search(len(v.deliveries), func(i int) bool { return v.deliveries[i].number >= number })
	if i == len(v.deliveries) || v.deliveries[i].number != number {
		return nil
	}
	return &v.deliveries[i]
}

func noDelivery(number uint64) string { return fmt.Sprintf("no such delivery: %d", number) }

func (v *verifier) fresh(k, value []byte) string {
	return v.bitmap(k, value, func(number uint64, d *delivery) {
		d.fresh = true
		v.countPending(number, d)
	})
}

func (v *verifier) skipped(k, value []byte) string {
	both := ""
	problem := v.bitmap(k, value, func(number uint64, d *delivery) {
		if d.fresh {
			both = alsoFresh(number)
		}
		d.failed = number < v.runs[string(schema.Runs)].end // later deliveries are listed when their run is indexed
	})
	return cmp.Or(problem, both)
}

func alsoFresh(number uint64) string {
	return fmt.Sprintf("delivery %d is also in %s", number, schema.Fresh)
}

// bitmap checks a bitmap of the segment's deliveries, and calls visit with each of them.
func (v *verifier) bitmap(k, value []byte, visit func(number uint64, d *delivery)) string {
	m, err := record.DecodeBitmap(value)
	switch {
	case err != nil:
		return unreadable
	case !bytes.Equal(k, v.segment.Key):
		return "no such segment"
	case m.First != v.segment.First || m.IsEmpty():
		return "starts at another number than its segment, or is empty"
	}
	ok := m.Each(func(n uint64) bool {
		d := v.delivery(n)
		if d != nil {
			visit(n, d)
		}
		return d != nil
	})
	return unless(ok, "contains numbers that are not deliveries")
}

// countPending counts a delivery if its webhook exists.
func (v *verifier) countPending(_ uint64, d *delivery) {
	if account, ok := v.get(schema.WebhookIDs, d.webhook); ok && account != nil {
		v.report.Pending++
	}
}

func (v *verifier) pendingRow(k, value []byte) string {
	d := v.delivery(record.Number(k))
	if d == nil {
		return noDelivery(record.Number(k))
	}
	if d.fresh {
		return alsoFresh(d.number)
	}
	v.countPending(0, d)
	_, err := record.DecodePending(value)
	return unless(err == nil, unreadable)
}

func (v *verifier) firstAttempts(k, value []byte) (problem string) {
	pack, err := record.DecodePack(value)
	if err != nil || pack.Len() == 0 {
		return unreadable
	}
	last := record.Number(k[8:]) - 1 // the pack may begin with a greater number
	for i := 0; i < pack.Len() && problem == ""; i++ {
		one := pack.At(i)
		if len(one) < 8 || record.Number(one[:8]) <= last {
			return "unreadable record, or attempts out of order"
		}
		last = record.Number(one[:8])
		problem = v.attemptAt(last, 1, one[8:])
	}
	return problem
}

// attempt checks a row of schema.Attempts or schema.LastAttempts.
func (v *verifier) attempt(k, value []byte) string {
	return v.attemptAt(record.Number(k[:8]), int(binary.BigEndian.Uint32(k[8:])), value)
}

// attemptAt checks the record of an attempt at a delivery.
func (v *verifier) attemptAt(number uint64, want int, value []byte) string {
	d := v.delivery(number)
	if d == nil {
		return noDelivery(number)
	}
	if d.fresh {
		return alsoFresh(number)
	}
	attempt, outcome, err := record.DecodeAttempt(value)
	if err != nil || attempt.Number != want {
		return unreadable
	}
	if want > d.attempt {
		d.attempt, d.failed = want, outcome == driver.GiveUp
	}
	return ""
}

// failed checks a row of deliveries that may have failed.
func (v *verifier) failed(k, value []byte) (problem string) {
	m, err := record.DecodeFailed(record.Number(k[:8]), value)
	if err != nil {
		return unreadable
	}
	m.Each(func(n uint64) bool {
		if n >= v.first {
			var webhook []byte
			segment, err := v.found.At(n)
			if err == nil {
				webhook, err = segment.Recipient(n)
			}
			problem = unless(err == nil && bytes.Equal(webhook, k[8:]), fmt.Sprintf("no delivery %d to this webhook", n))
		}
		return problem == ""
	})
	return problem
}

// runRow checks a row of schema.Runs or schema.EventRuns.
func (v *verifier) runRow(k, value []byte) string {
	numbers, err := record.DecodeRun(record.Number(k[:8]), value)
	if err != nil {
		return unreadable
	}
	for _, n := range numbers {
		if n >= v.first && !v.isErasingEventOf(n) {
			v.have(k, record.NumberKey(n))
		}
	}
	return ""
}

// isErasingEventOf reports whether the event or delivery with that number belongs to an account
// under erasure. An index row of such an account is deleted together with the first of its events.
func (v *verifier) isErasingEventOf(number uint64) bool {
	if !v.erasing {
		return false
	}
	segment, err := v.found.At(number)
	if err != nil {
		return false
	}
	event, err := segment.Event(segment.Index(number))
	return err == nil && v.isErasing(event.Account)
}
