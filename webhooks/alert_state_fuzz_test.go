package webhooks_test

import (
	"context"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// Whatever is found in a store, reports go on: a state that cannot be read is as if
// there were none, and the next one can.
func FuzzAlertState(f *testing.F) {
	box := &spied{memory.New()}
	s := newService(f, box, webhooks.Config{Now: func() time.Time { return noon }})
	watch(f, s, "10")
	noError(f, s.ReportBalance(f.Context(), account, sui("9")))
	noError(f, s.ReportBandwidth(f.Context(), account, 9, 10, "2026-11"))
	for _, metric := range []webhooks.Metric{webhooks.MetricBalance, webhooks.MetricBandwidth} {
		_, err := box.UpdateAlert(f.Context(), account, metric, func(step *webhooks.AlertStep) error {
			f.Add(step.State)
			f.Add(step.State[:len(step.State)-1])
			return nil
		})
		noError(f, err)
	}
	f.Add([]byte{})
	f.Add([]byte("2 is a version of later"))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, state []byte) {
		for _, metric := range []webhooks.Metric{webhooks.MetricBalance, webhooks.MetricBandwidth} {
			_, err := box.UpdateAlert(t.Context(), account, metric, func(step *webhooks.AlertStep) error {
				step.State = state
				return nil
			})
			noError(t, err)
		}
		if err := s.ReportBandwidth(t.Context(), account, 10, 10, "2026-12"); err != nil {
			wantInvalid(t, err, "period") // the one that is kept is of another form
			noError(t, s.ForgetPeriod(t.Context(), account, webhooks.MetricBandwidth))
			noError(t, s.ReportBandwidth(t.Context(), account, 10, 10, "2026-12"))
		}
		noError(t, s.ReportBalance(t.Context(), account, sui("10")))
		noError(t, s.ReportBalance(t.Context(), account, sui("9")))
		var told []webhooks.AlertEvent
		if len(state) > 0 && state[0] == 1 {
			return // it can be read, maybe
		}
		noError(t, s.ReportBalance(t.Context(), account, sui("10")))
		noError(t, s.ReportBalance(context.WithValue(t.Context(), spyKey{}, &told), account, sui("9")))
		if len(told) != 1 {
			t.Errorf("a balance that went below was told %d times", len(told))
		}
	})
}
