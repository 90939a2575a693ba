package storageapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// exportVersion is the version of what ExportAccount writes. A field or kind that is added
// does not change it.
const exportVersion = 1

// ExportAccount writes all that is kept of an account to w, for people who ask what that is:
// lines of JSON, documented in docs/operations.md. There are no secrets and no hashes in it, so nothing can
// be restored from it; [transfer.Store] is for that. Bodies of events are in it as long as they are
// kept, what the account's own requests set, and what was told of it.
//
// The first line tells the version and the account, the last one how many lines of each kind there are
// before it: without it the export is not whole, since w or the store failed, or ctx ended,
// which the error says. While others write to the account, keys, events and so on are each as
// they were at some moment of the export. An account that has nothing has only these two lines.
func (h *Handler) ExportAccount(ctx context.Context, account string, w io.Writer) error {
	if account == "" {
		return errors.New("storageapi: export account: the account must be given")
	}
	buffered := bufio.NewWriter(w)
	e := accountExport{lines: json.NewEncoder(buffered), counts: make(map[string]int)}
	e.lines.SetEscapeHTML(false)
	err := e.write(ctx, h, account)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return fmt.Errorf("storageapi: export account: %w", err)
	}
	return nil
}

// An accountExport writes the lines of one.
type accountExport struct {
	lines  *json.Encoder
	counts map[string]int // by kind
}

func (e *accountExport) write(ctx context.Context, h *Handler, account string) error {
	head := map[string]any{"kind": "account", "version": exportVersion, "account": account, "exportedAt": shownTime(time.Now())}
	if err := e.lines.Encode(head); err != nil {
		return err
	}
	for page, err := range transfer.Pages(ctx, h.store, account, 200) {
		if err != nil {
			return err
		}
		if len(page.Unreadable) > 0 {
			return fmt.Errorf("cannot be read: %q", page.Unreadable)
		}
		for _, r := range page.Records {
			if err := e.record(r); err != nil {
				return err
			}
		}
	}
	return e.lines.Encode(map[string]any{"kind": "end", "lines": e.counts})
}

// A line is what is written of one thing; null where there is none.
type line map[string]any

func (e *accountExport) line(kind string, l line) error {
	l["kind"] = kind
	e.counts[kind]++
	return e.lines.Encode(l)
}

// record writes the line of a record. What is a secret or a hash in it stays out.
func (e *accountExport) record(r transfer.Record) error {
	switch r := r.(type) {
	case *transfer.Key:
		return e.line("key", line{
			"id": r.ID, "name": r.Name, "scopes": r.Scopes.Names(), "createdAt": shownTime(r.CreatedAt), "expiresAt": shownTime(r.ExpiresAt),
			"lastUsedAt": shownTime(r.LastUsedAt), "previousValueExpiresAt": shownTime(r.PreviousExpiresAt), "previousValueUsedAt": shownTime(r.PreviousUsedAt),
			"hint": r.Hint, "previousValueHint": r.PreviousHint, "createdBy": r.CreatedBy.String(),
		})
	case *transfer.Webhook:
		return e.line("webhook", line{
			"id": r.ID, "url": r.URL, "events": r.Events, "active": r.Active, "offReason": r.OffReason, "balanceThreshold": shownThreshold(r.BalanceThreshold),
			"createdAt": shownTime(r.CreatedAt), "previousSecretExpiresAt": shownTime(r.PreviousSecretExpiresAt),
			"firstDeliveredAt": shownTime(r.ProvenAt), "failingSince": shownTime(r.FailingSince),
		})
	case *transfer.Request:
		of := "key"
		if r.Webhook {
			of = "webhook"
		}
		return e.line("idempotencyKey", line{"of": of, "idempotencyKey": r.IdempotencyKey, "created": r.Made.ID, "at": shownTime(r.At)})
	case *transfer.Alert:
		return e.line("alert", line{"metric": r.Metric, "state": shownState(r.State)})
	case *transfer.DedupKey:
		return e.line("toldOnce", line{"key": r.Key, "until": shownTime(r.Until)})
	case *transfer.Event:
		return e.line("event", exportedEvent(r))
	case *transfer.Recovery:
		return e.line("recovery", line{
			"id": r.ID, "webhookId": r.WebhookID, "states": r.States, "from": shownTime(r.From), "to": shownTime(r.To),
			"createdAt": shownTime(r.CreatedAt), "recovered": r.Recovered, "done": r.Done,
		})
	case *transfer.AuditEntry:
		return e.line("auditEntry", exportedAuditEntry(&r.Entry))
	}
	return fmt.Errorf("a record of kind %q is not known", r.Kind())
}

func exportedEvent(r *transfer.Event) line {
	deliveries := make([]line, 0, len(r.Deliveries))
	for _, d := range r.Deliveries {
		attempts := make([]line, 0, len(d.Attempts))
		for _, a := range d.Attempts {
			attempts = append(attempts, line{
				"number": a.Number, "startedAt": shownTime(a.StartedAt), "durationMs": float64(a.Duration.Microseconds()) / 1000,
				"status": a.Status, "errorClass": a.Class, "error": a.Error, "response": a.Response,
			})
		}
		deliveries = append(deliveries, line{"webhookId": d.WebhookID, "state": d.State, "attempts": attempts})
	}
	var body any
	if !r.NoBody {
		body = string(r.Body) // as text, to the byte: what reads JSON may change numbers
	}
	return line{
		"id": r.ID, "type": r.Type, "timestamp": shownTime(r.Timestamp), "publishedAt": shownTime(r.PublishedAt), "body": body, "deliveries": deliveries,
	}
}

func exportedAuditEntry(n *audit.Entry) line {
	return line{
		"id": n.ID, "at": shownTime(n.At), "action": n.Action, "target": line{"kind": n.Target.Kind, "id": n.Target.ID},
		"actor": line{"kind": n.Actor.Kind, "id": n.Actor.ID}, "changed": n.Changed, "requestId": n.RequestID, "clientAddress": n.ClientAddress,
		"object": n.Object, "reason": n.Reason, "since": shownTime(n.Since), "until": shownTime(n.Until),
	}
}

// shownTime returns a time as the API shows it; nil if it is zero.
func shownTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func shownThreshold(amount webhooks.Amount) any {
	if amount == 0 {
		return nil
	}
	return amount.String()
}

// shownState returns what an alert remembers, which is JSON; as text if it is not.
func shownState(state []byte) any {
	if json.Valid(state) {
		return json.RawMessage(state)
	}
	return fmt.Sprintf("%q", state)
}
