package alerts_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/memory"
)

func TestParseAmount(t *testing.T) {
	for text, want := range map[string]alerts.Amount{
		"0": 0, "0.0": 0, "0.000000000": 0, "1": 1e9, "10": 10e9, "1.0": 1e9, "12.5": 12_500_000_000, "12.50": 12_500_000_000,
		"0.000000001": 1, "0.1": 1e8, "0.000000010": 10, "1.000000001": 1_000_000_001, "10000000000": 1e19,
		"18446744073.709551615": math.MaxUint64, "18446744073": 18446744073e9,
	} {
		if got, err := alerts.ParseAmount(text); got != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestParseAmount_Invalid_ReturnsError(t *testing.T) {
	for _, text := range []string{
		"", " ", ".", "1.", ".5", "-1", "+1", "-0", "00", "01", "00.5", "1 ", " 1", "1\n", "1,5", "1_000", "1e3", "1E3", "0x10", "1.5.5",
		"1.-5", "1.+5", "1. 5", "NaN", "Inf", "infinity", "SUI", "1 SUI", "١", "１", "½", "1\x00", "1.0000000001", "0.0000000000",
		"18446744073.709551616", "18446744074", "99999999999999999999", strings.Repeat("9", 100000), "1." + strings.Repeat("0", 100000),
	} {
		got, err := alerts.ParseAmount(text)
		var invalid *apierr.ValidationError
		if got != 0 || !errors.As(err, &invalid) || invalid.Field != "amount" {
			t.Errorf("%.30q is %d, %v, want a ValidationError for amount", text, got, err)
		} else if len(err.Error()) > 150 {
			t.Errorf("the error for %.30q is long: %v", text, err)
		}
	}
}

func TestParseAmount_OtherUnit_ErrorsNameIt(t *testing.T) {
	s := newService(t, memory.New(), testConfig{Alerts: alerts.Config{Unit: "EUR"}})
	if got := s.Unit(); got != "EUR" {
		t.Errorf("Unit: got %q", got)
	}
	if got, err := s.ParseAmount("12.5"); got != 12_500_000_000 || err != nil {
		t.Errorf("got %d, %v", uint64(got), err)
	}
	for text, want := range map[string]string{
		"much":                `amount must be a decimal amount of EUR, such as "12.5"`,
		"1.0000000001":        "amount must have at most 9 decimals",
		"18446744073.7095517": "amount must be at most 18446744073.709551615 EUR",
	} {
		if _, err := s.ParseAmount(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if got := newService(t, memory.New(), testConfig{}).Unit(); got != "SUI" {
		t.Errorf("the default unit is %q", got)
	}
}

func TestAmountString(t *testing.T) {
	for amount, want := range map[alerts.Amount]string{
		0: "0", 1: "0.000000001", 10: "0.00000001", 1e8: "0.1", 1e9: "1", 12_500_000_000: "12.5", 100e9: "100",
		1_000_000_001: "1.000000001", math.MaxUint64: "18446744073.709551615",
	} {
		if got := amount.String(); got != want {
			t.Errorf("%d is %q, want %q", uint64(amount), got, want)
		}
	}
}

func TestAmountSurvivesPrinting(t *testing.T) {
	for range 10000 {
		amount := alerts.Amount(rand.Uint64() >> rand.IntN(64))
		if got, err := alerts.ParseAmount(amount.String()); got != amount || err != nil {
			t.Fatalf("%d printed as %v and came back as %d, %v", uint64(amount), amount, uint64(got), err)
		}
	}
}

func TestAmountInJSON(t *testing.T) {
	data, err := json.Marshal(map[string]alerts.Amount{"a": 12_500_000_000})
	if err != nil || string(data) != `{"a":"12.5"}` {
		t.Errorf("got %s, %v", data, err)
	}
	var amount alerts.Amount
	if err := json.Unmarshal([]byte(`"0.25"`), &amount); err != nil || amount != 25e7 {
		t.Errorf("got %v, %v", amount, err)
	}
	for _, text := range []string{`0.25`, `1`, `"1e3"`, `""`, `true`, `[]`, `{}`} {
		if err := json.Unmarshal([]byte(text), &amount); err == nil || amount != 25e7 {
			t.Errorf("%s left %v, %v", text, amount, err)
		}
	}
}

func FuzzParseAmount(f *testing.F) {
	for _, seed := range []string{"0", "12.5", "0.000000001", "18446744073.709551615", "18446744073.709551616", "1e3", "00.1", ".1", "-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		amount, err := alerts.ParseAmount(text)
		if err != nil {
			if amount != 0 {
				t.Errorf("%q is %v and %v", text, amount, err)
			}
			return
		}
		exact, ok := new(big.Rat).SetString(text) // also accepts forms that ParseAmount refuses
		if !ok {
			t.Fatalf("%q is %v, and not a number", text, amount)
		}
		if mist := new(big.Rat).SetFrac(new(big.Int).SetUint64(uint64(amount)), big.NewInt(1e9)); exact.Cmp(mist) != 0 {
			t.Errorf("%q is %v", text, amount)
		}
		if again, err := alerts.ParseAmount(amount.String()); again != amount || err != nil {
			t.Errorf("%v came back as %v, %v", amount, again, err)
		}
	})
}

// FuzzAmount checks that a printed amount parses as the same amount and prints the same again.
func FuzzAmount(f *testing.F) {
	for _, seed := range []uint64{0, 1, 999_999_999, 1e9, 12_500_000_000, 1e19, math.MaxUint64} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, mist uint64) {
		amount := alerts.Amount(mist)
		if again, err := alerts.ParseAmount(amount.String()); again != amount || err != nil {
			t.Errorf("%d was printed as %v and came back as %d, %v", mist, amount, uint64(again), err)
		}
	})
}

// A database driver must write an Amount as an integer of MIST, and read it back.
func TestAmount_InADatabase_IsAnIntegerOfMIST(t *testing.T) {
	value, err := driver.DefaultParameterConverter.ConvertValue(alerts.Amount(12_500_000_000))
	if err != nil || value != int64(12_500_000_000) {
		t.Fatalf("got value %v (%T), %v, want 12500000000", value, value, err)
	}
	var read sql.Null[alerts.Amount]
	if err := read.Scan(value); err != nil || read.V != 12_500_000_000 {
		t.Errorf("got %v, %v, want 12.5", read.V, err)
	}
}
