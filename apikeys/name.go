package apikeys

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/input"
)

// checkName validates the name of a key. People choose keys by name, so a name must be visible, and
// invisible characters must not make it look like another name.
func checkName(name string) error {
	const rule = "must be 1 to 128 characters, without control characters"
	if !utf8.ValidString(name) {
		return input.Invalid("name", "must be valid UTF-8")
	}
	if !input.PlainText(name) {
		return input.Invalid("name", rule)
	}
	if n := utf8.RuneCountInString(name); n < 1 || n > 128 {
		return input.Invalid("name", fmt.Sprintf("%s, not %d", rule, n))
	}
	for _, r := range name {
		switch {
		case unicode.In(r, unicode.Zl, unicode.Zp):
			return input.Invalid("name", fmt.Sprintf("must be one line, without the separator %U", r))
		case unicode.Is(unicode.Bidi_Control, r), r == zeroWidthSpace:
			return input.Invalid("name", fmt.Sprintf("must not contain %U, which is invisible and changes how the name looks", r))
		}
	}
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return input.Invalid("name", "must not begin or end with a space")
	}
	return checkVisible(name)
}

const zeroWidthSpace = '\u200b'

// checkVisible requires a visible character in the name, and visible characters on both sides of
// each joiner. Joiners shape Persian words and emoji and are useless elsewhere.
func checkVisible(name string) error {
	visible := false   // the name has a visible character
	joinable := false  // a joiner may follow
	joining := rune(0) // the joiner just read, or 0
	for _, r := range name {
		switch {
		case isJoiner(r):
			if !joinable {
				return misplaced(r)
			}
			joining, joinable = r, false
		case isVisible(r):
			visible, joinable, joining = true, true, 0
		case joining != 0:
			return misplaced(joining)
		case !isModifier(r):
			joinable = false
		}
	}
	switch {
	case joining != 0:
		return misplaced(joining)
	case !visible:
		return input.Invalid("name", "must have at least one visible character")
	}
	return nil
}

func misplaced(joiner rune) error {
	return input.Invalid("name", fmt.Sprintf("must not contain joiners, such as %U, except between visible characters", joiner))
}

// isJoiner reports whether r is an invisible character that joins or separates its
// neighbors.
func isJoiner(r rune) bool {
	switch r {
	case '\u034f', '\u2060', '\ufeff': // combining grapheme joiner, word joiner, no-break space of no width
		return true
	}
	return unicode.Is(unicode.Join_Control, r)
}

// isModifier reports whether r is an invisible character that selects a variant of the preceding
// character.
func isModifier(r rune) bool { return unicode.Is(unicode.Variation_Selector, r) }

// isVisible reports whether r is drawn. It treats characters unknown to Go's Unicode tables as
// visible.
func isVisible(r rune) bool {
	const brailleBlank = '\u2800'
	return r != brailleBlank && !unicode.IsSpace(r) &&
		!unicode.In(r, unicode.Cf, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
