package transfer_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

var same = cmp.Options{cmpopts.EquateComparable(scopes.Set{}), cmpopts.EquateEmpty()}

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
	case *auth.Resources:
		*value, _ = auth.ParseResources([]string{"bucket-1", "bucket-2"})
	case *auth.Networks:
		*value = "192.0.2.0/24 2001:db8::/32"
	case *driver.Labels:
		*value = driver.LabelsOf(map[string]string{"team": "billing"})
	case *[]driver.Header:
		*value = []driver.Header{{Name: "Authorization", Value: "Bearer 12345678", Secret: true}, {Name: "X-Team", Value: "a: b"}}
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

// This test fails if a record has a field that its payload lacks.
func TestAppendRecord_EveryFieldSet_RoundTrips(t *testing.T) {
	for _, r := range records() {
		if key, is := r.(*transfer.Key); is { // only audit entries have names and hints of actors
			key.CreatedBy.Name, key.CreatedBy.Hint = "", ""
		}
		if webhook, is := r.(*transfer.Webhook); is {
			webhook.Version = 0 // an import starts at 1
		}
		line, err := transfer.AppendRecord(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := transfer.ParseRecord(line)
		if err != nil {
			t.Errorf("%s: %v", r.Kind(), err)
			continue
		}
		if diff := cmp.Diff(r, got, same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Kind(), diff)
		}
	}
}

func TestParseRecord_InvalidLine_ReturnsErrRecord(t *testing.T) {
	fine := `{"kind":"scan","version":1,"payload":{"state":"YQ=="}}`
	if _, err := transfer.ParseRecord([]byte(fine)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"", "{}", "null", "[]", fine + fine, fine[1:],
		strings.Replace(fine, "scan", "unknown", 1),
		strings.Replace(fine, `"version":1`, `"version":2`, 1),
		strings.Replace(fine, `"version":1`, `"version":0`, 1),
		strings.Replace(fine, `"state"`, `"new":1,"state"`, 1),
		strings.Replace(fine, `"YQ=="`, `""`, 1),
		strings.Replace(fine, `"YQ=="`, `7`, 1),
		`{"kind":"key","version":1,"payload":{"account":"a","id":"k","hash":"00"}}`,
		`{"kind":"key","version":1,"payload":{"account":"a","id":"k","scopes":["` + strings.Repeat("x", 99) + `\u0000"],"hash":"` + strings.Repeat("01", 32) + `"}}`,
		`{"kind":"key","version":1,"payload":{"account":"a","id":"","hash":"` + strings.Repeat("01", 32) + `"}}`,
		`{"kind":"webhook","version":1,"payload":{"account":"a","id":"w","secret":"whsec_hidden"}}`,
		`{"kind":"event","version":1,"payload":{"account":"a","id":"e","publishedAt":1,"deliveries":[{"webhookId":"w","state":"pending","before":1}]}}`,
		`{"kind":"event","version":1,"payload":{"account":"a","id":"e","publishedAt":1,"deliveries":[{"webhookId":"w","state":"pending","waitMillis":9223372036854775807}]}}`,
		`{"kind":"event","version":1,"payload":{"account":"a","id":"e","publishedAt":1,"deliveries":[{"webhookId":"w","state":"gone"}]}}`,
	} {
		r, err := transfer.ParseRecord([]byte(line))
		if !errors.Is(err, transfer.ErrRecord) || r != nil {
			t.Errorf("ParseRecord of %s = %v, %v, want ErrRecord", line, r, err)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("error contains a secret: %v", err)
		}
	}
}

// FuzzParseRecord checks that every parsed record can be written and parsed again unchanged.
func FuzzParseRecord(f *testing.F) {
	for _, r := range records() {
		if key, is := r.(*transfer.Key); is { // only audit entries have names and hints of actors
			key.CreatedBy.Name, key.CreatedBy.Hint = "", ""
		}
		if webhook, is := r.(*transfer.Webhook); is {
			webhook.Version = 0 // an import starts at 1
		}
		line, err := transfer.AppendRecord(nil, r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte(`{"kind":"event","version":1,"payload":{"account":"a","id":"e","publishedAt":-1,"body":"AA=="}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := transfer.ParseRecord(line)
		if err != nil {
			if !errors.Is(err, transfer.ErrRecord) {
				t.Errorf("ParseRecord = %v, want ErrRecord", err)
			}
			return
		}
		if err := transfer.Check([]transfer.Record{r}); err != nil {
			t.Errorf("Check = %v", err)
		}
		again, err := transfer.AppendRecord(nil, r)
		if err != nil {
			t.Fatalf("AppendRecord = %v", err)
		}
		parsed, err := transfer.ParseRecord(again)
		if err != nil {
			t.Fatalf("ParseRecord of %s = %v", again, err)
		}
		if diff := cmp.Diff(r, parsed, same); diff != "" {
			t.Errorf("record after another round trip (-first +second):\n%s", diff)
		}
	})
}
