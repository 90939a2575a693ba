package record

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// records returns one valid record of each kind.
func records() [][]byte {
	at := time.UnixMilli(1_800_000_000_123).UTC()
	key := driver.Key{ID: "key_1", Account: "acct", Name: "name", Scopes: scopes.Specified(), CreatedAt: at, ExpiresAt: at}
	key.Previous.Sum[0], key.PreviousExpiresAt = 1, at
	key.Resources, _ = auth.ParseResources([]string{"a", "b"})
	key.Disabled, key.AllowedNetworks, key.RateLimit, key.Labels = true, "192.0.2.0/24", 60, driver.LabelsOf(map[string]string{"team": "billing"})
	webhook := driver.Webhook{
		ID: "wh_1", Account: "acct", URL: "https://example.com/", Events: alerts.EventTypes(), WebhookHealth: driver.WebhookHealth{Active: true, FailingSince: at, WarnedAt: at, OffReason: driver.OffFailing},
		Threshold: 1, Secret: signing.NewSecret(), CreatedAt: at,
		PreviousSecret: signing.NewSecret(), PreviousSecretExpiresAt: at, PastEvents: alerts.EventTypes(),
		PausedUntil: at, Resources: key.Resources, Headers: []driver.Header{{Name: "Authorization", Value: "Bearer 12345678", Secret: true}, {Name: "X-Team", Value: "a"}},
	}
	event := driver.EncodedEvent{ID: "evt_1", Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: at, Body: []byte("{}")}
	attempt := driver.Attempt{Number: 3, StartedAt: at, Duration: time.Second, Status: 500, Class: driver.ClassStatus, Error: "status 500", Response: "oops"}
	recovery := Recovery{driver.Recovery{
		ID: "rec_1", Account: "acct", WebhookID: "wh_1", States: []driver.DeliveryState{driver.Dead}, From: at, To: at, CreatedAt: at, Recovered: 300,
	}, 1 << 20}
	return [][]byte{
		EncodeKey(&key), EncodeWebhook(&webhook, nil), AppendEvent(nil, &event), (&Pending{at, 3, 2, true, true}).Encode(),
		EncodeAttempt(&attempt, driver.Retry), EncodeRun(4096, []uint64{4096, 4300, 8000}), recovery.Encode(),
		testSegment(&event), (&Bitmap{7, []byte{2}}).Encode(),
		(&Request{ID: "key_1", Fingerprint: [32]byte{1}, At: at}).Encode(),
		EncodeMark(clock.Mark{Wall: at, Steady: at, Sure: at}),
		EncodeIDEntries([]IDEntry{{1, 7}, {1, 9}, {300, 8}}),
		EncodeFailed(&Bitmap{MaxFailed, []byte{1, 2, 3, 4, 5}}), EncodeFailed(&Bitmap{MaxFailed, []byte{255, 255, 255, 255, 255, 255}}),
		EncodeAuditEntry(&audit.Entry{At: at, Action: audit.KeyChanged, Changed: []string{"name"}, Since: at, Until: at, Pending: true}, 7),
		(&AuditRecord{StoredAt: at.UnixMilli(), Before: 7, BeforeOfTarget: 3, Account: "acct", ID: "aud_1", AuditEntry: []byte("an audit entry")}).Encode(),
	}
}

var decoders = []func(record []byte) error{
	func(r []byte) error { return DecodeKey(new(driver.Key), make([]byte, 32), r) },
	func(r []byte) error { _, err := DecodeWebhook("acct", "wh_1", r, nil); return err },
	func(r []byte) error { _, err := decodeEvent(r); return err },
	func(r []byte) error { _, err := DecodePending(r); return err },
	func(r []byte) error { _, _, err := DecodeAttempt(r); return err },
	func(r []byte) error { _, err := DecodeRun(4096, r); return err },
	func(r []byte) error { _, err := DecodeRecovery("rec_1", r); return err },
	readSegment,
	func(r []byte) error { _, err := DecodeBitmap(r); return err },
	func(r []byte) error { _, err := DecodeRequest(r); return err },
	func(r []byte) error { _, err := DecodeMark(r); return err },
	func(r []byte) error {
		rows, err := AppendIDEntries(nil, r)
		for _, e := range rows {
			if numbers, _ := AppendIDNumbers(nil, r, e.Key); err == nil && !slices.Contains(numbers, e.Number) {
				return fmt.Errorf("%v not found: %v", e, numbers)
			}
		}
		return err
	},
	func(r []byte) error { _, err := DecodeFailed(MaxFailed, r); return err },
	func(r []byte) error { _, err := DecodeFailed(MaxFailed, r); return err },
	func(r []byte) error { _, _, err := DecodeAuditEntry("acct", "aud_1", r); return err },
	func(r []byte) error { _, err := DecodeAuditRecord(r); return err },
}

// testSegment builds a segment of two events with one delivery each, which have the numbers 7 to
// 10.
func testSegment(event *driver.EncodedEvent) []byte {
	var s SegmentBuilder
	s.Begin(7)
	for range 2 {
		s.AppendEvent(AppendEvent(nil, event), event.Body, []string{"wh_1"}, nil)
	}
	segment, _ := s.Records()
	return segment
}

// testPack packs two records, with the numbers 7 and 9.
func testPack() []byte {
	var p Packer
	p.AppendNumbered(7, []byte("seven"))
	p.AppendNumbered(9, []byte("nine"))
	return p.Record()
}

// readPack reads all records of a pack.
func readPack(record []byte) error {
	p, err := DecodePack(record)
	for i := range p.Len() + 2 {
		_ = p.At(i - 1)
		_ = p.ByNumber(uint64(6 + i))
	}
	return err
}

// readSegment reads all events of a segment whose last number is 10.
func readSegment(record []byte) error {
	segment, err := DecodeSegment(NumberKey(10), record)
	if err != nil {
		return err
	}
	for number := range segment.Last + 2 {
		i := segment.Index(number)
		_, _ = segment.Recipient(number)
		_, _ = segment.DeliveryTo(i, "wh_1")
		if _, err := segment.Event(i); err != nil && !errors.Is(err, ErrCorrupt) {
			return err
		}
		_ = segment.End(i)
	}
	return nil
}

func TestSegment_FindsEventsAndDeliveriesByNumber(t *testing.T) {
	event := driver.EncodedEvent{ID: "evt_1", Account: "acct", Type: alerts.TypeBalanceLow}
	segment, err := DecodeSegment(NumberKey(10), testSegment(&event))
	if err != nil {
		t.Fatal(err)
	}
	if segment.First != 7 || segment.Len() != 2 || segment.End(0) != 9 || segment.End(1) != 11 {
		t.Errorf("segment = %+v", segment)
	}
	for number, i := range map[uint64]int{6: -1, 7: 0, 8: 0, 9: 1, 10: 1, 11: 1} {
		if got := segment.Index(number); got != i {
			t.Errorf("Index(%d) = %d, want %d", number, got, i)
		}
		id, err := segment.Recipient(number)
		if isDelivery := number == 8 || number == 10; isDelivery != (err == nil) || isDelivery && string(id) != "wh_1" {
			t.Errorf("Recipient(%d) = %s, %v", number, id, err)
		}
	}
}

func TestDecoders_DamagedRecord_ReturnErrCorrupt(t *testing.T) {
	for i, record := range records() {
		if err := decoders[i](record); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		newer := append([]byte{Version + 1}, record[1:]...)
		damages := [][]byte{{}, newer}
		if len(record) > 10 { // a shorter record may be valid after any cut
			damages = append(damages, []byte{Version}, record[:5])
		}
		for _, damaged := range damages {
			if err := decoders[i](damaged); !errors.Is(err, ErrCorrupt) {
				t.Errorf("record %d truncated to %d bytes: err = %v", i, len(damaged), err)
			}
		}
	}
}

// FuzzRecords checks that decoding any bytes returns a record or ErrCorrupt.
func FuzzRecords(f *testing.F) {
	for _, record := range records() {
		f.Add(record)
	}
	f.Add(testPack())
	f.Fuzz(func(t *testing.T, record []byte) {
		for i, decode := range append(decoders, readPack) {
			if err := decode(record); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("record %d: %v", i, err)
			}
		}
	})
}

// Numbers of attempts read from the file cannot become invalid indexes.
func TestDecodePending_ImpossibleAttempts_ReturnsErrCorrupt(t *testing.T) {
	for _, attempts := range []int{MaxAttempts + 1, 1 << 31, 1<<63 - 1} {
		if p, err := DecodePending((&Pending{Due: time.Now(), Attempts: attempts}).Encode()); err == nil {
			t.Errorf("DecodePending with %d attempts = %d attempts, want an error", attempts, p.Attempts)
		}
	}
}

func TestPack_FindsRecordsByNumber(t *testing.T) {
	p, err := DecodePack(testPack())
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[uint64]string{6: "", 7: "seven", 8: "", 9: "nine", 10: ""} {
		if got := string(p.ByNumber(number)); got != want {
			t.Errorf("ByNumber(%d) = %q, want %q", number, got, want)
		}
	}
}

// The test checks the fields of later versions, which may follow the name. Fields with an odd tag
// must be rejected.
func TestDecodeKey_FieldsOfLaterVersions_AreIgnoredOrRejected(t *testing.T) {
	for _, set := range []scopes.Set{{}, scopes.Specified(), scopes.Of("teams:read"), scopes.Of(scopes.FilesRead, "teams:read", scopes.AccountRead)} {
		key := driver.Key{ID: "key_1", Account: "acct", Name: "name", Scopes: set}
		record := EncodeKey(&key)
		var got driver.Key
		if err := DecodeKey(&got, make([]byte, 32), record); err != nil || got.Scopes != set || got.Name != key.Name {
			t.Errorf("scopes of %q = %q, %v", set, got.Scopes, err)
		}
		if err := DecodeKey(&got, make([]byte, 32), append(record, 1, 1, 1)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("unknown odd tag: err = %v, want ErrCorrupt", err)
		}
		optional := append(record, 2, 1, 1)
		if err := DecodeKey(&got, make([]byte, 32), optional); err != nil || got.Name != key.Name {
			t.Errorf("unknown even tag: name %q, err %v", got.Name, err)
		}
	}
}

func TestFields_UnknownTags_EvenAreKeptAndOddRejected(t *testing.T) {
	decode := map[string]func([]byte) error{
		"key": decoders[0], "webhook": decoders[1], "event": decoders[2],
	}
	for i, name := range []string{"key", "webhook", "event"} {
		for fields, ok := range map[string]bool{
			"": true, "\x64\x00": true, "\x64\x03abc\x84\x01\x01x": true,
			"\x21\x00": false, "\x64\x00\x21\x01x": false, "\x64\x02x": false, "\x64": false, "\x00\x00": false,
		} {
			record := append(records()[i], fields...)
			if err := decode[name](record); (err == nil) != ok || err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s with fields %q: err = %v", name, fields, err)
			}
			odd := fields == "\x21\x00" || fields == "\x64\x00\x21\x01x" // odd tags, written by a newer version
			if err := decode[name](record); name != "key" && errors.Is(err, errors.ErrUnsupported) != odd {
				t.Errorf("%s with fields %q: err = %v; want ErrNewer: %v", name, fields, err, odd)
			}
			kept := map[string]func([]byte) []byte{"key": KeyFields, "webhook": WebhookFields}[name]
			if kept != nil && string(kept(record)) != fields {
				t.Errorf("%s with fields %q: kept %q", name, fields, kept(record))
			}
		}
	}
}
