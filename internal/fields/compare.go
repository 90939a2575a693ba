package fields

import (
	"bytes"
	"crypto/sha256"
)

// list returns the values of the fields with one of the uses, and the end of each. Equal values
// give equal bytes.
func list(r Record, uses Uses) ([]byte, []part) {
	w := Walk{mode: listing, uses: uses, aside: new(aside)}
	r.Fields(&w)
	return w.out, w.parts
}

// Equal reports whether two records are equal in the fields with one of the uses.
func Equal(a, b Record, uses Uses) bool {
	one, _ := list(a, uses)
	other, _ := list(b, uses)
	return bytes.Equal(one, other)
}

// Changed returns the names of the settings that differ.
func Changed(before, after Record) (names []string) {
	was, old := list(before, Setting)
	is, now := list(after, Setting)
	for i, a, b := 0, 0, 0; i < len(old); i++ {
		if !bytes.Equal(was[a:old[i].end], is[b:now[i].end]) {
			names = append(names, old[i].name)
		}
		a, b = old[i].end, now[i].end
	}
	return names
}

// Sum returns a hash of the fields with one of the uses.
func Sum(r Record, uses Uses) [sha256.Size]byte {
	values, _ := list(r, uses)
	return sha256.Sum256(values)
}

// Copy copies the data that a record shares with other records, and rounds times as stores do.
func Copy(r Record) {
	w := Copier()
	r.Fields(&w)
}

// Copier returns a walk that copies like [Copy]. With it, the record can stay on the stack.
func Copier() Walk { return Walk{mode: copying} }

// Check calls check for each text of a record, and returns the first error.
func Check(r Record, check func(name, text string) error) error {
	w := Walk{mode: checking, aside: &aside{check: check}}
	r.Fields(&w)
	return w.err
}

func (w *Walk) verify(name, text string) {
	if w.err == nil {
		w.err = w.check(name, text)
	}
}
