package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

// A Recorder is a [webhooks.Scheduler] that records what a store reports, in order. It
// attempts nothing. Its zero value records from the first report on.
type Recorder struct {
	mu       sync.Mutex
	reports  []Report
	copies   []webhooks.Webhook // of each report's webhook, at the time
	changed  chan struct{}      // closed by the next report, if something waits for it
	ended    bool
	underWay map[webhooks.Group]int
}

// A Report is one call of a [webhooks.Scheduler]'s method; an Add is one report for each
// delivery of its list. The fields that the method has no argument for are zero.
type Report struct {
	Method  string                   // such as "Add"
	Ref     webhooks.DeliveryRef     // Add, Nudge, Ended; of Webhook and Probe the WebhookID
	Pending webhooks.PendingDelivery // Add
	Webhook *webhooks.Webhook        // Add, Webhook
	Scope   webhooks.Scope           // Forget
	Groups  []webhooks.Group         // Pause
	Err     error                    // Trouble
	Late    bool                     // the method was called after End
}

// String returns what a test prints of the report.
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
		var c webhooks.Webhook
		if w := reports[i].Webhook; w != nil {
			c = *w
			c.Events, c.PastEvents = slices.Clone(w.Events), slices.Clone(w.PastEvents)
		}
		r.copies = append(r.copies, c)
	}
	r.reports = append(r.reports, reports...)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Add implements [webhooks.Scheduler], as the methods below do.
func (r *Recorder) Add(list []webhooks.PendingDelivery) {
	var reports []Report
	for _, p := range list {
		report := Report{Method: "Add", Pending: p, Webhook: p.Webhook, Ref: webhooks.DeliveryRef{Number: p.Number}}
		if p.Webhook != nil {
			report.Ref.WebhookID = p.Webhook.ID
		}
		reports = append(reports, report)
	}
	r.note(reports...)
}

// Nudge records a delivery that is to be the next.
func (r *Recorder) Nudge(ref webhooks.DeliveryRef) { r.note(Report{Method: "Nudge", Ref: ref}) }

// Webhook records a change of a webhook.
func (r *Recorder) Webhook(w *webhooks.Webhook) {
	r.note(Report{Method: "Webhook", Webhook: w, Ref: webhooks.DeliveryRef{WebhookID: w.ID}})
}

// Probe records a requested attempt.
func (r *Recorder) Probe(webhookID string) {
	r.note(Report{Method: "Probe", Ref: webhooks.DeliveryRef{WebhookID: webhookID}})
}

// Forget records a scope that is gone.
func (r *Recorder) Forget(scope webhooks.Scope) { r.note(Report{Method: "Forget", Scope: scope}) }

// Ended records deliveries that the store has ended.
func (r *Recorder) Ended(refs []webhooks.DeliveryRef) {
	var reports []Report
	for _, ref := range refs {
		reports = append(reports, Report{Method: "Ended", Ref: ref})
	}
	r.note(reports...)
}

// Pause records groups that the store gives away.
func (r *Recorder) Pause(groups []webhooks.Group) {
	r.note(Report{Method: "Pause", Groups: slices.Clone(groups)})
}

// Trouble records that something cannot be read, or all can be again.
func (r *Recorder) Trouble(err error) { r.note(Report{Method: "Trouble", Err: err}) }

// UnderWay returns what SetUnderWay has set.
func (r *Recorder) UnderWay() map[webhooks.Group]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.underWay)
}

// SetUnderWay sets how many attempts the store is told to be under way, by group.
func (r *Recorder) SetUnderWay(attempts map[webhooks.Group]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay = maps.Clone(attempts)
}

// Reports returns the reports so far.
func (r *Recorder) Reports() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reports)
}

// Wait waits until the reports so far are enough, and returns ctx's error if they are not
// before ctx is done.
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

// End is called once Deliver has returned: reports from then on are Late.
func (r *Recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// Faults returns what the store has done wrong whatever was to be reported: a report that is
// Late, and a webhook that was changed after it was reported.
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
			faults = append(faults, fmt.Sprintf("the webhook of %v was changed afterwards (-reported +now):\n%s", report, diff))
		}
	}
	return faults
}
