package cursor

import (
	"math"
	"regexp"
	"testing"
)

func TestSeal(t *testing.T) {
	key, other := NewKey(), NewKey()
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`)
	seen := make(map[string]bool)
	for _, n := range []uint64{0, 1, 2, 1 << 32, math.MaxUint64} {
		text := key.Seal(n)
		if !form.MatchString(text) || seen[text] || key.Seal(n) != text || other.Seal(n) == text {
			t.Errorf("%d is sealed as %q", n, text)
		}
		seen[text] = true
		if got, ok := key.Open(text); got != n || !ok {
			t.Errorf("%d is opened as %d, %v", n, got, ok)
		}
		if got, ok := other.Open(text); ok {
			t.Errorf("%d is opened with another key, as %d", n, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	key := Key{1}
	for _, seed := range []string{"", "7", key.Seal(7), key.Seal(7) + "=", key.Seal(7)[:21], NewKey().Seal(7)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := key.Open(text)
		if again, known := key.Open(key.Seal(n)); ok && (again != n || !known) {
			t.Errorf("%q is %d, and that is %d, %v", text, n, again, known)
		}
	})
}
