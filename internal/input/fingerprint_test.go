package input

import "testing"

func TestFingerprint_DifferentParts_Differ(t *testing.T) {
	seen := map[[32]byte][]string{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"a", "b", ""}, {"", "a", "b"}, {"\x01a\x01b"}, {"\x01b"}} {
		sum := Fingerprint(parts...)
		if other, known := seen[sum]; known {
			t.Errorf("fingerprints of %q and %q are equal, want them to differ", parts, other)
		}
		seen[sum] = parts
	}
}
