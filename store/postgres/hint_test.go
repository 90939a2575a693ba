package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
)

// TestHintOfAnOlderNode: a node that knows no hints gives a key another value; no value is then
// shown under the hint of another.
func TestHintOfAnOlderNode(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	hash := func(b byte) apikeys.Hash { return apikeys.Hash{Sum: [32]byte{b}} }
	if err := s.CreateKey(t.Context(), apikeys.Key{ID: "key", Account: "acct", Hash: hash(1), Hint: "sak_…1111"}, apikeys.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"", "sak_…1111"}
	for b := byte(2); b < 4; b++ {
		was, is := hash(b-1), hash(b)
		if _, err := pool(t).Exec(t.Context(), `update `+quoted(name)+`.keys set hash = $1, previous = $2 where id = 'key'`, is.Sum[:], was.Sum[:]); err != nil {
			t.Fatal(err)
		}
		key, err := s.KeyByID(t.Context(), "acct", "key")
		if got := []string{key.Hint, key.PreviousHint}; err != nil || !cmp.Equal(got, want) {
			t.Errorf("rotated to %d the key has the hints %q, %v, want %q", b, got, err, want)
		}
		want = []string{"", ""}
	}
}
