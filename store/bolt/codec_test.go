package bolt

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// records returns one good record of each kind.
func records() [][]byte {
	at := time.UnixMilli(1_800_000_000_123).UTC()
	key := apikeys.Key{ID: "key_1", Account: "acct", Name: "name", Scopes: scopes.All(), CreatedAt: at, ExpiresAt: at}
	key.Previous.Sum[0], key.PreviousExpiresAt = 1, at
	webhook := webhooks.Webhook{
		ID: "wh_1", Account: "acct", URL: "https://example.com/", Events: webhooks.EventTypes(), Active: true,
		BalanceThreshold: 1, Secret: signing.NewSecret(), CreatedAt: at, FailingSince: at, WarnedAt: at, OffReason: webhooks.OffFailing,
		PreviousSecret: signing.NewSecret(), PreviousSecretExpiresAt: at, PastEvents: webhooks.EventTypes(),
	}
	event := webhooks.EncodedEvent{ID: "evt_1", Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: at, Body: []byte("{}")}
	attempt := webhooks.Attempt{Number: 3, StartedAt: at, Duration: time.Second, Status: 500, Class: webhooks.ClassStatus, Error: "status 500", Response: "oops"}
	job := recovery{webhooks.Recovery{
		ID: "rec_1", Account: "acct", WebhookID: "wh_1", States: []webhooks.DeliveryState{webhooks.Dead}, From: at, To: at, CreatedAt: at, Recovered: 300,
	}, 1 << 20}
	var s Store
	return [][]byte{
		encodeKey(&key), s.encodeWebhook(&webhook), appendEvent(nil, &event), encodeOwed(&queue.Owed{Due: at, Attempts: 3, Before: 2, Recovered: true}),
		encodeAttempt(&attempt, webhooks.Retry), encodeRun(4096, []uint64{4096, 4300, 8000}), encodeRecovery(&job),
		testSegment(&event).record(), (&bitmap{7, []byte{2}}).record(),
		(&request{apikeys.DuplicateRequestError{ID: "key_1", Fingerprint: [32]byte{1}}, at}).encode(),
	}
}

var decoders = []func(record []byte) error{
	func(r []byte) error { return decodeKey(new(apikeys.Key), make([]byte, 32), r) },
	func(r []byte) error { var s Store; _, err := s.decodeWebhook("acct", "wh_1", r); return err },
	func(r []byte) error { _, err := decodeEvent(r); return err },
	func(r []byte) error { _, err := decodeOwed(r); return err },
	func(r []byte) error { _, _, err := decodeAttempt(r); return err },
	func(r []byte) error { _, err := decodeRun(4096, r); return err },
	func(r []byte) error { _, err := decodeRecovery("rec_1", r); return err },
	readSegment,
	func(r []byte) error { _, err := decodeBitmap(r); return err },
	func(r []byte) error { _, err := decodeRequest(r); return err },
}

// testSegment packs two events of one delivery each: the numbers 7 to 10.
func testSegment(event *webhooks.EncodedEvent) *packer {
	var p packer
	for _, number := range []uint64{7, 9} {
		e := p.next()
		*e = binary.BigEndian.AppendUint64(*e, number)
		e.string("wh_1")
		p.end()
		e.raw(appendEvent(nil, event))
		p.end()
	}
	return &p
}

// readSegment reads all there is in a segment whose last number is 10.
func readSegment(record []byte) error {
	segment, err := decodeSegment(seqKey(10), record)
	if err != nil {
		return err
	}
	for number := range segment.last + 2 {
		place := segment.place(number)
		_, _ = segment.recipient(number)
		_, _ = segment.deliveryTo(place, "wh_1")
		if _, err := segment.event(place); err != nil && !errors.Is(err, errRecord) {
			return err
		}
		_ = segment.end(place)
	}
	return nil
}

// TestSegments finds events and deliveries by their numbers.
func TestSegments(t *testing.T) {
	event := webhooks.EncodedEvent{ID: "evt_1", Account: "acct", Type: webhooks.TypeBalanceLow}
	segment, err := decodeSegment(seqKey(10), testSegment(&event).record())
	if err != nil {
		t.Fatal(err)
	}
	if segment.first != 7 || segment.len() != 2 || segment.end(0) != 9 || segment.end(1) != 11 {
		t.Errorf("%+v", segment)
	}
	for number, place := range map[uint64]int{6: -1, 7: 0, 8: 0, 9: 1, 10: 1, 11: 1} {
		if got := segment.place(number); got != place {
			t.Errorf("place(%d) = %d, want %d", number, got, place)
		}
		id, err := segment.recipient(number)
		if isDelivery := number == 8 || number == 10; isDelivery != (err == nil) || isDelivery && string(id) != "wh_1" {
			t.Errorf("recipient(%d) = %s, %v", number, id, err)
		}
	}
}

func TestDamagedRecords(t *testing.T) {
	for i, record := range records() {
		if err := decoders[i](record); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		newer := append([]byte{recordVersion + 1}, record[1:]...)
		damages := [][]byte{{}, newer}
		if len(record) > 10 { // shorter ones may end anywhere
			damages = append(damages, []byte{recordVersion}, record[:5])
		}
		for _, damaged := range damages {
			if err := decoders[i](damaged); !errors.Is(err, errRecord) {
				t.Errorf("record %d damaged to %d bytes: err = %v", i, len(damaged), err)
			}
		}
	}
}

// FuzzRecords: whatever is in the file, reading it ends in a record or errRecord.
func FuzzRecords(f *testing.F) {
	for _, record := range records() {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		for i, decode := range decoders {
			if err := decode(record); err != nil && !errors.Is(err, errRecord) {
				t.Errorf("record %d: %v", i, err)
			}
		}
	})
}
