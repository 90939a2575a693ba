package record

import (
	"bytes"
	"strings"
	"testing"
)

// The test checks that CutAccountKey returns the ID of every key, whether it is stored as text or
// as a ULID, and that IDs made by this library sort like their texts.
func TestAccountKey_AnyID_IsCutAgain(t *testing.T) {
	const ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, id := range []string{
		"key_" + ulid, "key_" + strings.ToLower(ulid), "key_8" + ulid[1:], "key_" + ulid + "0", "key_", "wh_" + ulid, "x",
	} {
		account, got, ok := CutAccountKey(AccountKey("acct", id))
		if account != "acct" || got != id || !ok {
			t.Errorf("%q: got %q of %q, %v", id, got, account, ok)
		}
	}
	if got, want := len(AccountKey("acct", "key_"+ulid)), len(AccountKey("acct", ""))+17; got != want {
		t.Errorf("the key has %d bytes, want %d", got, want)
	}
	for _, later := range []string{ulid[:25] + "W", "01ARZ3NDEKTSV4RRFFQ69G5G00", "7" + ulid[1:]} {
		if bytes.Compare(AccountKey("acct", "key_"+ulid), AccountKey("acct", "key_"+later)) >= 0 {
			t.Errorf("%s does not sort after %s", later, ulid)
		}
	}
}
