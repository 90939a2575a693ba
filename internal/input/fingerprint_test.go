package input

import "testing"

// Parts do not run together.
func TestFingerprint(t *testing.T) {
	seen := map[[32]byte][]string{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"a", "b", ""}, {"", "a", "b"}, {"\x01a\x01b"}, {"\x01b"}} {
		sum := Fingerprint(parts...)
		if other, known := seen[sum]; known {
			t.Errorf("%q and %q have one fingerprint", parts, other)
		}
		seen[sum] = parts
	}
}
