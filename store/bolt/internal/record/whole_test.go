package record

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// filled returns a T whose exported fields are all non-zero.
func filled[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func fill(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		*value = time.UnixMilli(1_234_567_890_123).UTC()
	case *time.Duration:
		*value = time.Hour + time.Millisecond
	case *signing.Secret:
		*value = signing.NewSecret()
	case *scopes.Set:
		*value = scopes.Of(scopes.FilesRead, "host:own")
	case *auth.Resources:
		*value, _ = auth.ParseResources([]string{"a", "b"})
	case *audit.Actor:
		*value = audit.Actor{Kind: audit.ActorKey, ID: "key_2", Name: "name", Hint: "hint"}
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("text")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Uint8, reflect.Uint64:
			v.SetUint(9)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0))
			fill(v.Index(1))
		case reflect.Array:
			for i := range v.Len() {
				fill(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i))
				}
			}
		default:
			panic("a field of kind " + v.Kind().String())
		}
	}
}

// The test fails if a field is added to a type but not to its codec.
func TestRecords_EveryFieldSet_RoundTrips(t *testing.T) {
	check := func(kind string, got, want any, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(scopes.Set{})); diff != "" || err != nil {
			t.Errorf("%s: %v, (-want +got):\n%s", kind, err, diff)
		}
	}
	key := filled[driver.Key]()
	key.LastUsedAt, key.PreviousUsedAt, key.Activity = time.Time{}, time.Time{}, "" // not in the record
	key.CreatedBy.Name, key.CreatedBy.Hint = "", ""                                 // not in the record
	var gotKey driver.Key
	err := DecodeKey(&gotKey, key.Hash.Sum[:], EncodeKey(&key))
	check("key", gotKey, key, err)

	webhook := filled[driver.Webhook]()
	gotWebhook, err := DecodeWebhook(webhook.Account, webhook.ID, EncodeWebhook(&webhook, nil), nil)
	check("webhook", gotWebhook, webhook, err)

	event := filled[Event]()
	event.Body, event.Scope = nil, "" // stored in another record, and not stored
	encoded := AppendPurged(AppendEvent(nil, &event.EncodedEvent), event.NoBody, event.Forgotten)
	SetPublished(encoded, event.PublishedAt, event.Deliveries)
	gotEvent, err := decodeEvent(encoded)
	check("event", gotEvent, event, err)

	attempt := filled[driver.Attempt]()
	gotAttempt, outcome, err := DecodeAttempt(EncodeAttempt(&attempt, driver.GiveUp))
	check("attempt", gotAttempt, attempt, err)
	check("outcome", outcome, driver.GiveUp, nil)

	pending := filled[Pending]()
	gotPending, err := DecodePending(pending.Encode())
	check("pending", gotPending, pending, err)

	recovery := filled[Recovery]()
	gotRecovery, err := DecodeRecovery(recovery.ID, recovery.Encode())
	check("recovery", gotRecovery, recovery, err)

	request := filled[Request]()
	gotRequest, err := DecodeRequest(request.Encode())
	check("request", gotRequest, request, err)

	entry := filled[audit.Entry]()
	gotAuditEntry, number, err := DecodeAuditEntry(entry.Account, entry.ID, EncodeAuditEntry(&entry, 7))
	check("audit entry", gotAuditEntry, entry, err)
	check("number", number, uint64(7), nil)

	row := filled[AuditRecord]()
	gotEntry, err := DecodeAuditRecord(row.Encode())
	check("audit record", gotEntry, row, err)
}
