package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The test checks all forms of the record. Most keys were never rotated, and need only one time.
func TestUses_EncodeThenDecode_RoundTrips(t *testing.T) {
	first, second := time.UnixMilli(1_000).UTC(), time.UnixMilli(2_000).UTC()
	for _, test := range []struct {
		uses Uses
		size int
	}{
		{Uses{}, 8},
		{Uses{Any: first, Current: first}, 8},
		{Uses{Any: first, Current: first, Activity: "a"}, 10},
		{Uses{Any: second, Current: second, Previous: first, Activity: "a"}, 26},
		{Uses{Activity: "a"}, 10},               // never used
		{Uses{Any: second, Current: first}, 25}, // used with a token that no longer belongs to the key
		{Uses{Any: second, Current: second, Previous: first}, 25},
		{Uses{Any: second, Previous: second}, 25},
	} {
		value := test.uses.Encode()
		if got := DecodeUses(value); len(value) != test.size || !cmp.Equal(got, test.uses) {
			t.Errorf("%+v: decoded as %+v from %d bytes, want %d bytes", test.uses, got, len(value), test.size)
		}
		if !ValidUses(value) || ValidUses(value[:7]) {
			t.Errorf("ValidUses of %d and 7 bytes: %v, %v, want true, false", len(value), ValidUses(value), ValidUses(value[:7]))
		}
	}
}
