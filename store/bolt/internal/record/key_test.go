package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// The test checks that all strings of a key share one allocation, and that its scopes need none.
func TestDecodeKey_AllocatesOnce(t *testing.T) {
	at := time.UnixMilli(1234567890123).UTC()
	want := driver.Key{
		ID: "key_1", Account: "acct", Name: "name", Scopes: scopes.Of(scopes.FilesRead), CreatedAt: at, ExpiresAt: at,
		CreatedBy: audit.Actor{Kind: audit.ActorPerson, ID: "ann: é"},
		Hash:      driver.Hash{Sum: [32]byte{1}}, Hint: "sak_…k3Qz",
		Previous: driver.Hash{Sum: [32]byte{2}}, PreviousHint: "old_…A1b2", PreviousExpiresAt: at,
	}
	record := append(EncodeKey(&want), "\x64\x01x"...)
	var got driver.Key
	if err := DecodeKey(&got, want.Hash.Sum[:], record); err != nil || !cmp.Equal(want, got, cmp.Comparer(func(a, b scopes.Set) bool { return a == b })) {
		t.Errorf("DecodeKey = %+v, %v, want %+v", got, err, want)
	}
	if fields := KeyFields(record); string(fields) != "\x64\x01x" {
		t.Errorf("KeyFields = %q, want the unknown field", fields)
	}
	allocs := testing.AllocsPerRun(100, func() {
		var key driver.Key
		if err := DecodeKey(&key, want.Hash.Sum[:], record); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations, want 1", allocs)
	}
}
