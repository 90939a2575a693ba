package webhooks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// Whatever periods are called: one is refused, or it leaves room for all to come of its
// form that are not far ahead.
func FuzzPeriods(f *testing.F) {
	for _, seed := range [][2]string{
		{"2026-11", "2026-12"}, {"2026-11", "2026-9"}, {"2099-01", "2026-12"}, {"2026-11-20", "2026-11-21"}, {"week 1", "week 2"},
		{"", "\x00"}, {"9999-12-31", "0000-00-00"}, {"½", "1/2"}, {"2026-13", "2026-01"},
	} {
		f.Add(seed[0], seed[1])
	}
	box := newTeller()
	s := newService(f, box, webhooks.Config{Now: func() time.Time { return noon }})
	f.Fuzz(func(t *testing.T, first, second string) {
		noError(t, s.ForgetPeriod(t.Context(), account, webhooks.MetricTransactions))
		report := func(period string) bool {
			err := s.ReportTransactions(t.Context(), account, 10, 10, period)
			if invalid := (*webhooks.ValidationError)(nil); err != nil && !errors.As(err, &invalid) {
				t.Fatal(err)
			}
			return err == nil
		}
		if !report(first) {
			return
		}
		box.told()
		if !report(second) {
			return
		}
		if told := len(box.told()); len(first) != len(second) || told == 2 != (second > first) {
			t.Errorf("%q after %q told of %d levels", second, first, told)
		}
		for _, period := range []string{first, second} {
			if at, err := time.Parse("2006-01", period); err == nil && at.After(noon.AddDate(0, 0, 45)) {
				t.Errorf("%q is accepted", period)
			}
		}
	})
}
