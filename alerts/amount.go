package alerts

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/storageapi/storageapi/internal/input"
)

// An Amount is an exact amount in billionths of [Config.Unit]. By default these are MIST: 1 SUI is
// 10⁹ MIST. Its range exceeds the total supply of 10¹⁰ SUI.
//
// A database driver treats an Amount as an integer, so keep billionths in a bigint column. For a
// column of whole units, such as numeric, pass [Amount.String], and scan into a string for
// [ParseAmount].
type Amount uint64

const (
	defaultUnit  = "SUI"
	mistDecimals = 9
	mistPerSUI   = 1_000_000_000
)

// ParseAmount parses a decimal amount such as "12.5": digits, then optionally a point and up to
// nine digits. It accepts no sign, exponent, space or needless leading zero. The error is a
// [*apierr.ValidationError] for the field amount.
func ParseAmount(s string) (Amount, error) { return parseAmount(s, defaultUnit) }

// ParseAmount is like the function [ParseAmount], but its errors name [Config.Unit].
func (s *AlertService) ParseAmount(text string) (Amount, error) { return parseAmount(text, s.unit) }

// Unit returns [Config.Unit].
func (s *AlertService) Unit() string { return s.unit }

func parseAmount(s, unit string) (Amount, error) {
	whole, fraction, point := strings.Cut(s, ".")
	switch {
	case !isDigits(whole), point && !isDigits(fraction), len(whole) > 1 && whole[0] == '0':
		return 0, badAmount(`must be a decimal amount of ` + unit + `, such as "12.5"`)
	case len(fraction) > mistDecimals && unit == defaultUnit:
		return 0, badAmount("must have at most 9 decimals: 1 SUI is 10⁹ MIST")
	case len(fraction) > mistDecimals:
		return 0, badAmount("must have at most 9 decimals")
	}
	mist, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", mistDecimals-len(fraction)), 10, 64)
	if err != nil { // the text has only digits, so the error means out of range
		return 0, badAmount("must be at most 18446744073.709551615 " + unit)
	}
	return Amount(mist), nil
}

func badAmount(reason string) error { return input.Invalid("amount", reason) }

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// String returns the amount in its unit as [ParseAmount] reads it, without trailing zeros: "12.5".
func (a Amount) String() string {
	b := strconv.AppendUint(nil, uint64(a)/mistPerSUI, 10)
	point := len(b)
	b = strconv.AppendUint(b, mistPerSUI+uint64(a)%mistPerSUI, 10) // adds a digit where the point goes, followed by nine decimals
	b[point] = '.'
	return string(bytes.TrimSuffix(bytes.TrimRight(b, "0"), []byte(".")))
}

// MarshalText implements [encoding.TextMarshaler]. The JSON form is a decimal string.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] and accepts the same texts as
// [ParseAmount].
func (a *Amount) UnmarshalText(text []byte) error {
	parsed, err := ParseAmount(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}
