package alerts_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// low returns the recorded form of a balance.low event.
func low(w webhooks.Webhook, balance, threshold string) string {
	return fmt.Sprintf(`balance.low %s {"balance":%q,"threshold":%q}`, w.ID, balance, threshold)
}

// report reports the balances one after the other.
func report(tb testing.TB, s *service, balances ...string) {
	tb.Helper()
	for _, balance := range balances {
		noError(tb, s.ReportBalance(tb.Context(), account, sui(balance)))
	}
}

func TestBalance_CrossesThreshold_NotifiesOncePerCrossing(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{})
	w := watch(t, s, "10")
	report(t, s, "10.000000001", "10")
	box.want(t, "reports at the threshold and above")
	report(t, s, "9.999999999", "9", "0", "9.999999999")
	box.want(t, "going below", low(w, "9.999999999", "10"))
	report(t, s, "10", "11", "3", "2")
	box.want(t, "coming back and going below again", low(w, "3", "10"))
	report(t, s, "10", "10")
	box.want(t, "coming back")
}

func TestBalance_FirstReportBelowThreshold_Notifies(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{})
	w := watch(t, s, "10")
	report(t, s, "0", "0")
	box.want(t, "the first report", low(w, "0", "10"))
}

// balance.low has no resource.
func TestBalance_WebhookLimitedToResources_GetsNothing(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{})
	w := watch(t, s, "10")
	_, err := s.WebhookService.Update(t.Context(), account, w.ID, webhooks.UpdateParams{Resources: &[]string{"a"}})
	noError(t, err)
	report(t, s, "0")
	box.want(t, "limited")
	_, err = s.WebhookService.Update(t.Context(), account, w.ID, webhooks.UpdateParams{Resources: new([]string)})
	noError(t, err)
	report(t, s, "0")
	box.want(t, "no longer limited", low(w, "0", "10"))
}

// Each webhook uses its own threshold, or else the host's default, if there is one.
func TestBalanceThresholds(t *testing.T) {
	for _, fallback := range []string{"", "5"} {
		t.Run("the default is "+fallback, func(t *testing.T) {
			box, config := newTeller(), testConfig{}
			if fallback != "" {
				config.Alerts.DefaultBalanceThreshold = sui(fallback)
			}
			s := newService(t, box, config)
			a, b, none := watch(t, s, "10"), watch(t, s, "7.5"), watch(t, s, "")
			files, err := s.Create(t.Context(), account, webhooks.CreateParams{
				URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeFilesExpiring}, Threshold: uint64(sui("10")),
			})
			noError(t, err)
			report(t, s, "20", "9")
			box.want(t, "9", low(a, "9", "10"))
			report(t, s, "7")
			box.want(t, "7", low(b, "7", "7.5"))
			report(t, s, "4")
			if fallback == "" {
				box.want(t, "4")
			} else {
				box.want(t, "4", low(none, "4", "5"))
			}
			report(t, s, "8", "4")
			if fallback == "" {
				box.want(t, "8 and 4", low(b, "4", "7.5"))
			} else {
				box.want(t, "8 and 4", low(b, "4", "7.5"), low(none, "4", "5"))
			}
			page, err := s.ListDeliveries(t.Context(), account, files.ID, webhooks.DeliveryQuery{Limit: 9})
			if len(page.Deliveries) > 0 || err != nil {
				t.Errorf("the webhook for files has %v, %v", page, err)
			}
		})
	}
}

func TestBalanceHysteresis(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Alerts: alerts.Config{BalanceHysteresis: sui("2")}})
	w := watch(t, s, "10")
	report(t, s, "11", "9", "11.999999999", "9")
	box.want(t, "not being back yet", low(w, "9", "10"))
	report(t, s, "12", "10")
	box.want(t, "being back")
	report(t, s, "8")
	box.want(t, "going below again", low(w, "8", "10"))
	most := alerts.Amount(math.MaxUint64)
	noError(t, s.ReportBalance(t.Context(), account, most))
	watch(t, s, most.String())
	box.want(t, "a webhook with the highest threshold there is")
	report(t, s, "9")
	if n := len(box.told()); n != 2 {
		t.Errorf("%d were told, want 2", n)
	}
}

// A webhook that is created or changed is notified about the last reported balance.
func TestBalance_WebhookCreatedOrChanged_GetsLastBalance(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{})
	early := watch(t, s, "30")
	box.want(t, "a webhook and no report")
	report(t, s, "20.25", "20")
	box.want(t, "the first report", low(early, "20.25", "30"))
	at := watch(t, s, "20")
	box.want(t, "a webhook with a threshold at the balance")
	above := watch(t, s, "20.000000001")
	box.want(t, "a webhook with a threshold above the balance", low(above, "20", "20.000000001"))
	noError(t, s.Delete(t.Context(), account, early.ID, webhooks.DeleteParams{}))
	report(t, s, "20")
	box.want(t, "a deletion")

	change := func(w webhooks.Webhook, params webhooks.UpdateParams) {
		t.Helper()
		_, err := s.Update(t.Context(), account, w.ID, params)
		noError(t, err)
	}
	threshold := func(text string) webhooks.UpdateParams {
		return webhooks.UpdateParams{Threshold: new(uint64(sui(text)))}
	}
	change(at, threshold("25"))
	box.want(t, "raising a threshold", low(at, "20", "25"))
	change(at, threshold("26"))
	box.want(t, "raising it once more: the balance was not back")
	change(at, threshold("15"))
	change(at, threshold("25"))
	box.want(t, "lowering it below the balance, and raising it", low(at, "20", "25"))
	change(at, webhooks.UpdateParams{Events: []webhooks.EventType{alerts.TypeFilesExpiring}})
	report(t, s, "19")
	change(at, webhooks.UpdateParams{Events: alerts.EventTypes()})
	box.want(t, "subscribing again", low(at, "19", "25"))
	change(at, webhooks.UpdateParams{Events: []webhooks.EventType{alerts.TypeFilesExpiring}})
	report(t, s, "18")
	change(at, webhooks.UpdateParams{Events: []webhooks.EventType{webhooks.AllEvents}})
	box.want(t, "subscribing to all events", low(at, "18", "25"))
}

// An inactive webhook is notified, too: its skipped deliveries can be recovered.
func TestBalance_InactiveWebhook_IsNotified(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{})
	w := watch(t, s, "10")
	if _, err := s.Update(t.Context(), account, w.ID, webhooks.UpdateParams{Active: new(false)}); err != nil {
		t.Fatal(err)
	}
	report(t, s, "9")
	box.want(t, "going below", low(w, "9", "10"))
	page, err := s.ListDeliveries(t.Context(), account, w.ID, webhooks.DeliveryQuery{Limit: 9})
	if err != nil || len(page.Deliveries) != 1 || page.Deliveries[0].State != webhooks.Skipped {
		t.Errorf("the deliveries are %v, %v", page, err)
	}
	if _, err := s.Update(t.Context(), account, w.ID, webhooks.UpdateParams{Active: new(true)}); err != nil {
		t.Fatal(err)
	}
	report(t, s, "9", "8")
	box.want(t, "being on again")
}

// A changed balance is written only if it causes an alert or differs by more than a 64th.
func TestBalance_SmallChanges_AreNotWritten(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{})
	watch(t, s, "10")
	report(t, s, "64")
	if n := box.wrote(); n != 1 {
		t.Errorf("the first report wrote %d times", n)
	}
	for range 1000 {
		report(t, s, "64", "63.5", "63", "65", "63.999999999")
	}
	if n := box.wrote(); n != 0 {
		t.Errorf("reports that change nothing wrote %d times", n)
	}
	for balance := sui("64"); balance > 0; balance -= sui("0.01") {
		noError(t, s.ReportBalance(t.Context(), account, balance))
	}
	if n := box.wrote(); n > 400 {
		t.Errorf("going down in 6,400 steps wrote %d times", n)
	}
}

// If the process died or the store failed before a notification, Run sends it later.
func TestBalance_NotificationFailed_RunRepeatsIt(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		box, log := newTeller(), &testlog.Book{}
		s := newService(t, box, testConfig{Logger: log.Logger()})
		report(t, s, "5")
		box.fail = errors.New("no disk")
		box.Store = failingReview{box.Store}
		w := watch(t, s, "10") // Create notifies it
		box.want(t, "a webhook, while the store fails")
		if len(log.Lines("balance notification of a webhook failed", w.ID)) != 1 {
			t.Errorf("the log has %s", log)
		}
		_, err := s.Update(t.Context(), account, w.ID, webhooks.UpdateParams{Active: new(false)}) // this service sends no notification
		noError(t, err)
		box.fail, box.Store = nil, box.Store.(failingReview).Store
		start(t, s)
		time.Sleep(2 * time.Minute)
		box.want(t, "two minutes", low(w, "5", "10"))
	})
}

// failingReview is a store that fails to update alerts.
type failingReview struct{ store.Store }

func (failingReview) UpdateAlert(context.Context, string, string, func(*driver.AlertStep) error) (int, error) {
	return 0, errors.New("no disk")
}

// If a report was stored but returned an error, repeating the report sends no second notification.
func TestReport_RepeatedAfterError_NotifiesOnce(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	watch(t, s, "10")
	expiring := alerts.ExpiringFile{ID: "file_1", ExpiresAt: noon.Add(time.Hour)}
	reports := map[string]func() error{
		"balance": func() error { return s.ReportBalance(t.Context(), account, sui("9")) },
		"use":     func() error { return s.ReportBandwidth(t.Context(), account, 9, 10, "2026-11") },
		"files":   func() error { return s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{expiring}) },
	}
	for name, report := range reports {
		box.fail = errors.New("the connection broke")
		if err := report(); !errors.Is(err, box.fail) {
			t.Errorf("%s: got %v", name, err)
		}
		box.fail = nil
		noError(t, report())
		if got := box.told(); len(got) != 1 {
			t.Errorf("%s told %v", name, got)
		}
	}
}

func TestReport_Invalid_ReturnsError(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	wantInvalid(t, s.ReportBalance(t.Context(), "", 0), "account")
	wantInvalid(t, s.ReportBalance(t.Context(), "\x01", 0), "account")
	for _, period := range []string{"", "a\x00", "\xff", string(make([]byte, 65))} {
		wantInvalid(t, s.ReportBandwidth(t.Context(), account, 1, 1, period), "period")
	}
	wantInvalid(t, s.ReportBandwidth(t.Context(), account, -1, 1, "2026-11"), "used")
	wantInvalid(t, s.ReportTransactions(t.Context(), account, 1, -1, "2026-11"), "limit")
	wantInvalid(t, s.ReportTransactions(t.Context(), "a\n", 1, 1, "2026-11"), "account")
	if n := box.wrote(); n != 0 {
		t.Errorf("they wrote %d times", n)
	}
}

// In one case, a balance is reported after each change, so that the webhook can be notified again.
func TestBalance_ThresholdToggled_NotifiesOnceInFiveSeconds(t *testing.T) {
	for _, reports := range []bool{false, true} {
		t.Run(fmt.Sprint("reports ", reports), func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				s := newService(t, memory.New(), testConfig{})
				a, other := watch(t, s, "1"), watch(t, s, "1")
				report(t, s, "50")
				set := func(w webhooks.Webhook, threshold string) {
					t.Helper()
					amount := uint64(sui(threshold))
					_, err := s.Update(t.Context(), account, w.ID, webhooks.UpdateParams{Threshold: &amount})
					noError(t, err)
					if reports && w.ID == a.ID {
						report(t, s, "50")
					}
				}
				events := func(w webhooks.Webhook) int {
					t.Helper()
					page, err := s.ListDeliveries(t.Context(), account, w.ID, webhooks.DeliveryQuery{Limit: 99})
					noError(t, err)
					return len(page.Deliveries)
				}
				begun := time.Now()
				for i := range 1000 { // 20 seconds
					set(a, "100")
					set(a, "10")
					if i == 500 {
						set(other, "60") // the other webhook is not delayed
					}
					time.Sleep(20 * time.Millisecond)
				}
				if got, most := events(a), int(time.Since(begun)/(5*time.Second))+1; got < 1 || got > most {
					t.Errorf("%d events within %v, want 1 to %d", got, time.Since(begun), most)
				}
				if got := events(other); got != 1 {
					t.Errorf("%d events of another webhook, want 1", got)
				}
				report(t, s, "200", "5", "200", "4") // reports are not limited like changes
				if got := events(other); got != 3 {
					t.Errorf("%d events of another webhook after it fell twice more, want 3", got)
				}
			})
		})
	}
}
