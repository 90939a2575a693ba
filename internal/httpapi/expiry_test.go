package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// keysAtNoon returns a service whose clock always shows noon.
func keysAtNoon(t *testing.T) *apikeys.KeyService {
	t.Helper()
	keys, err := apikeys.New(memory.New(), apikeys.Config{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// expiryAtNoon parses an expiry and has a service validate it at noon.
func expiryAtNoon(t *testing.T, s string) (time.Time, error) {
	t.Helper()
	at, err := parseExpiry(s)
	if err != nil {
		return at, err
	}
	params := apikeys.CreateParams{Name: "a", Scopes: scopes.Specified(), ExpiresAt: at}
	key, _, err := keysAtNoon(t).Create(t.Context(), "acct", params)
	return key.ExpiresAt, err
}

func TestParseExpiry(t *testing.T) {
	tests := []struct{ in, want string }{
		{"2026-01-31T12:00:01Z", "2026-01-31T12:00:01.000Z"},
		{"2026-01-31T12:00:00.001Z", "2026-01-31T12:00:00.001Z"},
		{"2026-01-31T12:00:00.0019999Z", "2026-01-31T12:00:00.001Z"},
		{"2026-01-31T14:00:01+02:00", "2026-01-31T12:00:01.000Z"},
		{"2026-01-31T04:30:01-07:30", "2026-01-31T12:00:01.000Z"},
		{"2026-02-01T12:00:00-00:00", "2026-02-01T12:00:00.000Z"},
		{"2026-02-01T12:00:00.123456789012345678901234567890Z", "2026-02-01T12:00:00.123Z"},
		{"2026-02-01", "2026-02-01T00:00:00.000Z"},
		{"2028-02-29", "2028-02-29T00:00:00.000Z"},
		{"9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"},
		{"9999-12-31", "9999-12-31T00:00:00.000Z"},
	}
	for _, test := range tests {
		got, err := expiryAtNoon(t, test.in)
		if err != nil {
			t.Errorf("%q: %v", test.in, err)
			continue
		}
		if text, _ := timestamp(got).MarshalJSON(); string(text) != `"`+test.want+`"` {
			t.Errorf("%q: got %s, want %s", test.in, text, test.want)
		}
	}
}

func TestParseExpiry_Invalid_ReturnsError(t *testing.T) {
	const form, past, year = "must be an RFC 3339", "must be in the future", "must be before the year 10000"
	tests := []struct{ in, want string }{
		{"", form},
		{"never", form},
		{"1769860801", form},
		{"2026-02-01T12:00:00", form},  // no offset
		{"2026-02-01 12:00:00Z", form}, // a space instead of T
		{"2026-02-01t12:00:00z", form},
		{"2026-02-01T12:00Z", form},      // no seconds
		{"2026-02-01T12:00:00,5Z", form}, // a comma before the fraction
		{"2026-02-01T24:00:00Z", form},
		{"2026-02-01T12:60:00Z", form},
		{"2026-02-01T12:00:00+02:60", form},
		{"2026-02-01T12:00:00.Z", form},
		{"2026-02-01T23:59:60Z", form}, // Go has no leap seconds
		{"2026-02-01T1:00:00Z", form},
		{"2026-02-01T12:00:00+0200", form},
		{"2026-02-01T12:00:00+24:00", form},
		{"2026-02-01T12:00:00 Z", form},
		{"2026-02-01Z", form},
		{"2026-2-1", form},
		{"20260201", form},
		{"2026-02-30", form},
		{"2027-02-29", form},
		{"2026-W06", form},
		{"02/01/2026", form},
		{"+2026-02-01", form},
		{"10000-01-01", form},
		{"10000-01-01T00:00:00Z", form},
		{" 2026-02-01", form},
		{"2026-02-01\n", form},
		{"2026-01-31T12:00:00Z", past},      // now
		{"2026-01-31T12:00:00.0009Z", past}, // now, rounded to milliseconds
		{"2026-01-31", past},                // midnight today
		{"2026-01-31T13:00:00+02:00", past},
		{"0001-01-01", past}, // the zero time.Time
		{"0001-01-01T00:00:00Z", past},
		{"0000-01-01", past},
		{"9999-12-31T23:59:59-00:01", year},
		{"9999-12-31T12:00:00-23:59", year},
	}
	for _, test := range tests {
		got, err := expiryAtNoon(t, test.in)
		if err == nil || !strings.HasPrefix(err.Error(), "expiresAt "+test.want) {
			t.Errorf("%q: got %v, error %v, want one with %q", test.in, got, err, test.want)
		}
	}
}
