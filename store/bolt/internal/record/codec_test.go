package record

import (
	"strings"
	"testing"
)

func TestID_AnyText_RoundTrips(t *testing.T) {
	const ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for text, size := range map[string]int{
		"":                              1,
		"aud_1":                         6,
		"key_" + ulid:                   21,
		ulid:                            17,
		"key_" + strings.ToLower(ulid):  31,
		"key_8" + ulid[1:]:              31, // more than 128 bits
		"key_" + ulid[:25] + "U":        31, // not a digit
		strings.Repeat("x", 200) + ulid: 2 + 200 + 16,
	} {
		var e encoder
		e.id(text)
		d := &decoder{rest: e}
		if got := d.id(); got != text || d.failed || len(d.rest) > 0 || len(e) != size {
			t.Errorf("%q: got %q in %d bytes, want it in %d", text, got, len(e), size)
		}
		for i := range e { // truncated
			if d := (&decoder{rest: e[:i]}); d.id() == text && !d.failed {
				t.Errorf("%q: decoded from %d of %d bytes", text, i, len(e))
			}
		}
	}
}
