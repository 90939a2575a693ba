package fields_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A kind is a type that lists its fields.
type kind struct {
	record         func() fields.Record // zero
	create, update any                  // the parameters of requests
	omitted        []string             // fields that are not listed
	unsummed       []string             // parameters that are not part of the fingerprint
}

var kinds = map[string]kind{
	"apikeys.Key": {
		record: func() fields.Record { return new(listed.Key) },
		create: apikeys.CreateParams{}, update: apikeys.UpdateParams{},
		omitted: []string{"CreatedBy.Name", "CreatedBy.Hint"}, // only audit entries have them
	},
	"audit.Entry": {
		record: func() fields.Record { return new(listed.AuditEntry) },
		create: struct{}{}, update: struct{}{},
	},
	"webhooks.Webhook": {
		record: func() fields.Record { return new(listed.Webhook) },
		create: webhooks.CreateParams{}, update: webhooks.UpdateParams{},
		omitted:  []string{"Version"}, // each store counts its own changes
		unsummed: []string{"Secret"},  // a repeated request may omit it
	},
}

// set makes a field non-zero.
func set(t *testing.T, v reflect.Value, name string) {
	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		*value = time.UnixMilli(1_234_567_890_123).UTC()
	case *scopes.Set:
		*value = scopes.Of(scopes.FilesRead, "host:own")
	case *scopes.Scope:
		*value = scopes.FilesRead
	case *auth.Resources:
		*value, _ = auth.ParseResources([]string{"b", "a"})
	case *driver.Hash:
		value.Sum[0] = 1
	case *driver.Header:
		*value = driver.Header{Name: "X-Name", Value: "text", Secret: true}
	case *signing.Secret:
		*value = signing.NewSecret()
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("text")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Uint64:
			v.SetUint(9)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			set(t, v.Index(0), name)
		default:
			t.Fatalf("field %s: this test has no value of type %s; add one", name, v.Type())
		}
	}
}

// leaves calls each for every field of a record, including the fields of embedded structs, actors
// and targets.
func leaves(r fields.Record, each func(name string, v reflect.Value)) {
	var enter func(v reflect.Value, prefix string)
	enter = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			field, of := v.Field(i), v.Type().Field(i)
			_, isActor := reflect.TypeAssert[audit.Actor](field)
			_, isTarget := reflect.TypeAssert[audit.Target](field)
			switch {
			case of.Anonymous:
				enter(field, prefix)
			case isActor || isTarget:
				enter(field, prefix+of.Name+".")
			default:
				each(prefix+of.Name, field)
			}
		}
	}
	enter(reflect.ValueOf(r).Elem(), "")
}

func object(t *testing.T, r fields.Record) string {
	t.Helper()
	b, err := fields.JSON(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFields_ListEveryField(t *testing.T) {
	for name, kind := range kinds {
		r := kind.record()
		leaves(r, func(field string, v reflect.Value) {
			if slices.Contains(kind.omitted, field) {
				return
			}
			before := object(t, r)
			set(t, v, field)
			if object(t, r) == before {
				t.Errorf("%s.%s is not in the list of fields: add a line with the next tag to its method Fields in internal/listed", name, field)
			}
		})
		if t.Failed() {
			continue
		}
		packed, unpacked := fields.Pack(nil, r), kind.record()
		w := fields.Unpacker(string(packed))
		for w.More() {
			unpacked.Fields(&w)
		}
		if again := fields.Pack(nil, unpacked); w.Err() != nil || !bytes.Equal(packed, again) {
			t.Errorf("%s: packed %q, unpacked and packed again %q, %v; do two fields have the same tag?", name, packed, again, w.Err())
		}
		copied := kind.record()
		reflect.ValueOf(copied).Elem().Set(reflect.ValueOf(r).Elem())
		fields.Copy(copied)
		pointers := make(map[string]uintptr)
		leaves(r, func(field string, v reflect.Value) {
			if v.Kind() == reflect.Slice {
				pointers[field] = v.Pointer()
			}
		})
		leaves(copied, func(field string, v reflect.Value) {
			if v.Kind() == reflect.Slice && v.Pointer() == pointers[field] {
				t.Errorf("a copy of %s shares %s", name, field)
			}
		})
	}
}

// Parameters of creations must be part of the request's fingerprint. Parameters of updates must be
// settings, which are audited, part of the ETag, and visible to conditions.
func TestFields_Parameters_DeclareTheirUses(t *testing.T) {
	for name, kind := range kinds {
		check := func(params any, uses fields.Uses, want string) {
			for f := range reflect.TypeOf(params).Fields() {
				field := f.Name
				r := kind.record()
				v := reflect.ValueOf(r).Elem().FieldByName(field)
				if !v.IsValid() || slices.Contains(kind.unsummed, field) {
					continue // not part of the record
				}
				before := fields.Sum(r, uses)
				set(t, v, field)
				if fields.Sum(r, uses) == before {
					t.Errorf("%s.%s is a parameter, so it needs the use %s", name, field, want)
				}
			}
		}
		check(kind.create, fields.Created, "Created")
		check(kind.update, fields.Setting, "Setting")
	}
}
