package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/driver"
)

// A Recorder is a [driver.Scheduler] that records the reports of a store in order and makes no
// attempts. The zero Recorder is ready to use.
type Recorder struct {
	mu       sync.Mutex
	reports  []Report
	copies   []driver.Webhook // a copy of each reported webhook, made when it was reported
	changed  chan struct{}    // closed by the next report; nil unless a Wait call is blocked
	ended    bool
	underWay map[driver.Group]int
}

// A Report records one call to a [driver.Scheduler] method. A call with a list of deliveries makes
// one Report for each delivery. Fields for which the method has no argument are zero.
type Report struct {
	Method  string                 // for example "Add"
	Ref     driver.DeliveryRef     // Add, Nudge, Ended; for Webhook and Probe only WebhookID
	Pending driver.PendingDelivery // Add
	Webhook *driver.Webhook        // Add, Webhook
	Scope   driver.Scope           // Forget
	Groups  []driver.Group         // Pause
	Err     error                  // Trouble
	Late    bool                   // the method was called after End
}

// String returns the report in the form that tests print.
func (r Report) String() string {
	late := ""
	if r.Late {
		late = " after Deliver returned"
	}
	switch r.Method {
	case "Add":
		p := r.Pending
		return fmt.Sprintf("Add(%s %d: attempts %d, before %d, recovered %v, first %v)%s",
			r.Ref.WebhookID, r.Ref.Number, p.Attempts, p.Before, p.Recovered, p.First, late)
	case "Webhook":
		return fmt.Sprintf("Webhook(%s, version %d, active %v, held %v)%s", r.Webhook.ID, r.Webhook.Version, r.Webhook.Active, r.Webhook.Held, late)
	case "Nudge", "Probe", "Ended":
		return fmt.Sprintf("%s(%s %d)%s", r.Method, r.Ref.WebhookID, r.Ref.Number, late)
	case "Trouble":
		return fmt.Sprintf("Trouble(%v)%s", r.Err, late)
	}
	return fmt.Sprintf("%s(%+v %v)%s", r.Method, r.Scope, r.Groups, late)
}

func (r *Recorder) note(reports ...Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range reports {
		reports[i].Late = r.ended
		var c driver.Webhook
		if w := reports[i].Webhook; w != nil {
			c = *w
			c.Events, c.PastEvents, c.EventScopes = slices.Clone(w.Events), slices.Clone(w.PastEvents), slices.Clone(w.EventScopes)
		}
		r.copies = append(r.copies, c)
	}
	r.reports = append(r.reports, reports...)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Add implements [driver.Scheduler], as do the methods below.
func (r *Recorder) Add(list []driver.PendingDelivery) {
	var reports []Report
	for _, p := range list {
		report := Report{Method: "Add", Pending: p, Webhook: p.Webhook, Ref: driver.DeliveryRef{Number: p.Number}}
		if p.Webhook != nil {
			report.Ref.WebhookID = p.Webhook.ID
		}
		reports = append(reports, report)
	}
	r.note(reports...)
}

// Nudge records a report of Nudge.
func (r *Recorder) Nudge(ref driver.DeliveryRef) { r.note(Report{Method: "Nudge", Ref: ref}) }

// Webhook records a report of a changed webhook.
func (r *Recorder) Webhook(w *driver.Webhook) {
	r.note(Report{Method: "Webhook", Webhook: w, Ref: driver.DeliveryRef{WebhookID: w.ID}})
}

// Probe records a request for an attempt.
func (r *Recorder) Probe(webhookID string) {
	r.note(Report{Method: "Probe", Ref: driver.DeliveryRef{WebhookID: webhookID}})
}

// Forget records a report of Forget.
func (r *Recorder) Forget(scope driver.Scope) { r.note(Report{Method: "Forget", Scope: scope}) }

// Ended records deliveries that the store has ended.
func (r *Recorder) Ended(refs []driver.DeliveryRef) {
	var reports []Report
	for _, ref := range refs {
		reports = append(reports, Report{Method: "Ended", Ref: ref})
	}
	r.note(reports...)
}

// Pause records a report of paused groups.
func (r *Recorder) Pause(groups []driver.Group) {
	r.note(Report{Method: "Pause", Groups: slices.Clone(groups)})
}

// Trouble records a report of Trouble.
func (r *Recorder) Trouble(err error) { r.note(Report{Method: "Trouble", Err: err}) }

// UnderWay returns the counts set by SetUnderWay.
func (r *Recorder) UnderWay() map[driver.Group]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.underWay)
}

// SetUnderWay sets the number of running attempts by group that UnderWay returns.
func (r *Recorder) SetUnderWay(attempts map[driver.Group]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay = maps.Clone(attempts)
}

func (r *Recorder) Reports() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reports)
}

// Wait waits until enough returns true for the reports so far. If ctx is done first, it returns
// ctx's error.
func (r *Recorder) Wait(ctx context.Context, enough func([]Report) bool) error {
	for {
		r.mu.Lock()
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed, reports := r.changed, slices.Clone(r.reports)
		r.mu.Unlock()
		if enough(reports) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// End marks all later reports as Late. Call it after Deliver has returned.
func (r *Recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// Faults describes violations of the contract by the store: reports that are Late, and webhooks
// that were modified after they were reported.
func (r *Recorder) Faults() (faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, report := range r.reports {
		if report.Late {
			faults = append(faults, report.String())
		}
		if report.Webhook == nil {
			if report.Method == "Add" {
				faults = append(faults, "Add of a delivery without its Webhook")
			}
			continue
		}
		if diff := cmp.Diff(r.copies[i], *report.Webhook, same); diff != "" {
			faults = append(faults, fmt.Sprintf("webhook of %v was changed after the report (-reported +now):\n%s", report, diff))
		}
	}
	return faults
}
