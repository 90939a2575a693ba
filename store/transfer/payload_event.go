package transfer

import (
	"math"
	"strings"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
)

type eventPayload struct {
	Account     string            `json:"account"`
	ID          string            `json:"id"`
	Type        driver.EventType  `json:"type"`
	Timestamp   millis            `json:"timestamp,omitzero"`
	Body        []byte            `json:"body,omitempty"`
	Trace       string            `json:"traceContext,omitempty"`
	Resource    string            `json:"resource,omitempty"`
	PublishedAt millis            `json:"publishedAt"`
	Matched     int               `json:"matched,omitempty"`
	NoBody      bool              `json:"noBody,omitempty"`
	Forgotten   bool              `json:"forgotten,omitempty"`
	Deliveries  []deliveryPayload `json:"deliveries,omitempty"`
}

type deliveryPayload struct {
	WebhookID   string               `json:"webhookId"`
	State       driver.DeliveryState `json:"state"`
	Attempts    []attemptPayload     `json:"attempts,omitempty"`
	Settled     driver.DeliveryState `json:"settled,omitempty"`
	Made        int                  `json:"made,omitempty"`
	Before      int                  `json:"before,omitempty"`
	Recovered   bool                 `json:"recovered,omitempty"`
	First       bool                 `json:"first,omitempty"`
	AsPublished bool                 `json:"asPublished,omitempty"`
	WaitMillis  int64                `json:"waitMillis,omitempty"`
}

type attemptPayload struct {
	Number         int               `json:"number"`
	StartedAt      millis            `json:"startedAt,omitzero"`
	DurationMicros int64             `json:"durationMicros,omitempty"`
	Status         int               `json:"status,omitempty"`
	Class          driver.ErrorClass `json:"class,omitempty"`
	Error          string            `json:"error,omitempty"`
	Response       string            `json:"response,omitempty"`
}

func payloadOfEvent(r *Event) eventPayload {
	p := eventPayload{
		Account: r.Account, ID: r.ID, Type: r.Type, Timestamp: millis{r.Timestamp}, Body: r.Body, Trace: r.TraceContext, Resource: r.Resource, PublishedAt: millis{r.PublishedAt},
		Matched: r.Matched, NoBody: r.NoBody, Forgotten: r.Forgotten,
	}
	if len(r.Deliveries) > 0 {
		p.Deliveries = make([]deliveryPayload, len(r.Deliveries))
	}
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		p.Deliveries[i] = deliveryPayload{
			d.WebhookID, d.State, nil, d.Settled, d.Made, d.Before, d.Recovered, d.First, d.AsPublished, d.Wait.Milliseconds(),
		}
		if len(d.Attempts) > 0 {
			p.Deliveries[i].Attempts = make([]attemptPayload, len(d.Attempts))
		}
		for j, a := range d.Attempts {
			p.Deliveries[i].Attempts[j] = attemptPayload{a.Number, millis{a.StartedAt}, a.Duration.Microseconds(), a.Status, a.Class, a.Error, a.Response}
		}
	}
	return p
}

func (p eventPayload) record() (Record, error) {
	r := &Event{
		EncodedEvent: driver.EncodedEvent{ID: p.ID, Account: p.Account, Type: p.Type, Timestamp: p.Timestamp.Time, TraceContext: p.Trace, Resource: p.Resource, Body: p.Body},
		PublishedAt:  p.PublishedAt.Time, Matched: p.Matched, NoBody: p.NoBody, Forgotten: p.Forgotten,
	}
	if len(p.Trace) > 64 || strings.ContainsFunc(p.Trace, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, malformed("traceContext", "must be at most 64 visible ASCII characters")
	}
	if p.Resource != "" && !auth.IsResource(p.Resource) {
		return nil, malformed("resource", "must be at most 128 visible ASCII characters")
	}
	if len(p.Deliveries) > 0 {
		r.Deliveries = make([]Delivery, len(p.Deliveries))
	}
	for i := range p.Deliveries {
		d := &p.Deliveries[i]
		if most := int64(math.MaxInt64 / time.Millisecond); d.WaitMillis > most || d.WaitMillis < -most {
			return nil, malformed("deliveries.waitMillis", "must be less than 292 years")
		}
		r.Deliveries[i] = Delivery{
			d.WebhookID, d.State, nil, d.Settled, d.Made, d.Before, d.Recovered, d.First, d.AsPublished, time.Duration(d.WaitMillis) * time.Millisecond,
		}
		for _, a := range d.Attempts {
			if most := int64(math.MaxInt64 / time.Microsecond); a.DurationMicros > most || a.DurationMicros < -most {
				return nil, malformed("deliveries.attempts.durationMicros", "must be less than 292 years")
			}
			r.Deliveries[i].Attempts = append(r.Deliveries[i].Attempts, driver.Attempt{
				Number: a.Number, StartedAt: a.StartedAt.Time, Duration: time.Duration(a.DurationMicros) * time.Microsecond, Status: a.Status,
				Class: a.Class, Error: a.Error, Response: a.Response,
			})
		}
	}
	return r, nil
}
