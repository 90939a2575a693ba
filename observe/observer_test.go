package observe_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/storageapi/storageapi/observe"
)

func TestJoin_SeveralObservers_CallsEachInOrderAndKeepsNilFunctions(t *testing.T) {
	if none := reflect.ValueOf(observe.Join(observe.Observer{}, observe.Observer{})); !none.IsZero() {
		t.Error("Join of zero Observers is not zero")
	}
	var calls []string
	full := func(name string) (o observe.Observer) {
		fields := reflect.ValueOf(&o).Elem()
		for i := range fields.NumField() {
			what := name + " " + fields.Type().Field(i).Name
			fields.Field(i).Set(reflect.MakeFunc(fields.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				calls = append(calls, what)
				return nil
			}))
		}
		return o
	}
	joined := reflect.ValueOf(observe.Join(full("a"), observe.Observer{}, full("b")))
	for i := range joined.NumField() {
		calls = nil
		var in []reflect.Value
		for in0 := range joined.Field(i).Type().Ins() {
			in = append(in, reflect.Zero(in0))
		}
		if len(in) == 2 {
			in[0] = reflect.ValueOf(context.Background())
		}
		joined.Field(i).Call(in)
		if field := joined.Type().Field(i).Name; len(calls) != 2 || calls[0] != "a "+field || calls[1] != "b "+field {
			t.Errorf("%s: calls = %q, want a, then b", field, calls)
		}
	}
}
