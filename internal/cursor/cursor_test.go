package cursor

import (
	"math"
	"regexp"
	"testing"
)

func TestEncode(t *testing.T) {
	key, other := NewKey(), NewKey()
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`)
	seen := make(map[string]bool)
	for _, n := range []uint64{0, 1, 2, 1 << 32, math.MaxUint64} {
		text := key.Encode(n)
		if !form.MatchString(text) || seen[text] || key.Encode(n) == text || other.Encode(n) == text {
			t.Errorf("Encode(%d) = %q, want a unique string of the form %s", n, text, form)
		}
		seen[text] = true
		if got, ok := key.Decode(text); got != n || !ok {
			t.Errorf("Decode(Encode(%d)) = %d, %v; want the same, true", n, got, ok)
		}
		if got, ok := other.Decode(text); ok {
			t.Errorf("%d decoded with another key: got %d, true; want false", n, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	key := Key{1}
	for _, seed := range []string{"", "7", key.Encode(7), key.Encode(7) + "=", key.Encode(7)[:21], NewKey().Encode(7)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := key.Decode(text)
		if again, known := key.Decode(key.Encode(n)); ok && (again != n || !known) {
			t.Errorf("Decode(%q) = %d, which decodes to %d, %v once encoded", text, n, again, known)
		}
	})
}
