package fields

import (
	"bytes"
	"crypto/sha256"
)

// list appends the values of the fields with one of the uses. Equal values give equal bytes.
func list(b []byte, r Record, uses Uses, parts *[]part) []byte {
	w := Walk{mode: listing, uses: uses, out: b, parts: parts}
	r.Fields(&w)
	return w.out
}

// Equal reports whether two records are equal in the fields with one of the uses.
func Equal(a, b Record, uses Uses) bool {
	return bytes.Equal(list(nil, a, uses, nil), list(nil, b, uses, nil))
}

// Changed returns the names of the settings that differ.
func Changed(before, after Record) (names []string) {
	var old, now []part
	was, is := list(nil, before, Setting, &old), list(nil, after, Setting, &now)
	for i, a, b := 0, 0, 0; i < len(old); i++ {
		if !bytes.Equal(was[a:old[i].end], is[b:now[i].end]) {
			names = append(names, old[i].name)
		}
		a, b = old[i].end, now[i].end
	}
	return names
}

// Sum returns a hash of the fields with one of the uses.
func Sum(r Record, uses Uses) [sha256.Size]byte { return sha256.Sum256(list(nil, r, uses, nil)) }

// Copy replaces what a record shares with other records by copies, and rounds times as stores do.
func Copy(r Record) { r.Fields(&Walk{mode: copying}) }

// Check calls check for each text of a record, and returns the first error.
func Check(r Record, check func(name, text string) error) error {
	w := Walk{mode: checking, check: check}
	r.Fields(&w)
	return w.err
}

func (w *Walk) verify(name, text string) {
	if w.err == nil {
		w.err = w.check(name, text)
	}
}
