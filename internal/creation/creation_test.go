package creation

import "testing"

// Parts do not run together.
func TestSumOf(t *testing.T) {
	seen := map[Fingerprint][]string{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"a", "b", ""}, {"", "a", "b"}, {"\x01a\x01b"}, {"\x01b"}} {
		sum := FingerprintOf(parts...)
		if other, known := seen[sum]; known {
			t.Errorf("%q and %q have one sum", parts, other)
		}
		seen[sum] = parts
	}
}
