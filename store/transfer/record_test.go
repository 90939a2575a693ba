package transfer_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// filled sets every exported field of a record to a non-zero value.
func filled[R any](r *R) *R {
	fill(reflect.ValueOf(r).Elem())
	return r
}

func fill(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		*value = time.UnixMilli(1234567890123).UTC()
	case *signing.Secret:
		*value = signing.NewSecret()
	case *scopes.Set:
		*value = scopes.Of(scopes.FilesRead, "host:own")
	case *driver.Hash:
		value.Sum[0] = 1
	case *time.Duration:
		*value = time.Hour + time.Millisecond
	case *driver.DeliveryState:
		*value = driver.Dead
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("text")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Uint64:
			v.SetUint(math.MaxUint64)
		case reflect.Uint8:
			v.SetUint(9)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
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
			panic("unsupported field of kind " + v.Kind().String())
		}
	}
}

// records returns a record of each kind with all fields set.
func records() []transfer.Record {
	event := filled(new(transfer.Event))
	event.Body = nil // as NoBody requires
	event.Deliveries[0].State = driver.Pending
	alive := filled(new(transfer.Event))
	alive.NoBody, alive.Forgotten = false, false
	alive.Deliveries[0] = transfer.Delivery{WebhookID: "webhook", State: driver.Skipped}
	return []transfer.Record{
		filled(new(transfer.Key)), filled(new(transfer.Webhook)), filled(new(transfer.Request)), filled(new(transfer.Alert)),
		filled(new(transfer.DedupKey)), filled(new(transfer.Scan)), event, alive, filled(new(transfer.Recovery)),
		filled(new(transfer.AuditEntry)),
	}
}

// eachField calls visit for each exported field of a record and of the structs and lists in it.
func eachField(v reflect.Value, name string, visit func(name string, v reflect.Value)) {
	switch v.Addr().Interface().(type) {
	case *time.Time, *signing.Secret, *scopes.Set, *driver.Hash:
		visit(name, v)
		return
	}
	switch {
	case v.Kind() == reflect.Slice && v.Len() > 0 && v.Index(0).Kind() == reflect.Struct:
		eachField(v.Index(0), name, visit)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if of := v.Type().Field(i); of.IsExported() {
				eachField(v.Field(i), strings.TrimPrefix(name+"."+of.Name, "."), visit)
			}
		}
	default:
		visit(name, v)
	}
}

// This test fails if checksums ignore a field of a record.
func TestSummary_EveryField_ChangesChecksum(t *testing.T) {
	ignored := []string{
		"Key.CreatedBy.Name", "Key.CreatedBy.Hint", // only audit entries have them
		"Webhook.Version", // an import starts at 1
		"Deliveries.First", "Deliveries.AsPublished", "Deliveries.Wait", "NextEventID",
		"EncodedEvent.Scope", // not stored
	}
	for _, r := range records() {
		before := make(transfer.Summary)
		before.Add(r)
		eachField(reflect.ValueOf(r).Elem(), "", func(name string, v reflect.Value) {
			if v.IsZero() {
				return
			}
			was := reflect.New(v.Type()).Elem()
			was.Set(v)
			v.SetZero()
			after := make(transfer.Summary)
			after.Add(r)
			v.Set(was)
			if changes, want := before.Compare(after) != nil, !slices.Contains(ignored, name); changes != want {
				t.Errorf("%s: clearing %s changes the checksum: %t, want %t", r.Kind(), name, changes, want)
			}
		})
	}
}

func TestCheck_InvalidRecord_ReturnsErrRecord(t *testing.T) {
	for _, r := range records() {
		if key, is := r.(*transfer.Key); is {
			key.Hash.Sum[0] = 0
		}
		if event, is := r.(*transfer.Event); is {
			event.Deliveries[0].State = "gone"
		}
		eachField(reflect.ValueOf(r).Elem(), "", func(_ string, v reflect.Value) {
			if v.Kind() == reflect.String {
				v.SetString("hidden\x00")
			}
		})
		if _, is := r.(*transfer.Scan); is {
			r = &transfer.Scan{}
		}
		err := transfer.Check([]transfer.Record{r})
		if !errors.Is(err, transfer.ErrRecord) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("Check of an invalid %s = %v, want ErrRecord without the value", r.Kind(), err)
		}
	}
}
