package storageapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/transfer"
)

// exportVersion is the format version of ExportAccount. New fields and kinds do not change it.
const exportVersion = 1

// ExportAccount writes all records of an account to w, for data access requests, as the JSON lines
// documented in docs/operations.md. The export contains event bodies within their retention, all
// values that the account's requests set, and audit entries. It contains no secrets or hashes,
// so it cannot be restored; use [transfer.Store] for that.
//
// The first line has the version and the account; the last counts the preceding lines by kind. If w
// or the store fails or ctx ends, ExportAccount returns the error, and the last line is missing. If
// other calls write during the export, each record appears as it was at some moment of the export.
// The export of an account without records has only these two lines.
func (h *Handler) ExportAccount(ctx context.Context, account string, w io.Writer) error {
	if account == "" {
		return errors.New("storageapi: export account: account is required")
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

// An accountExport writes the lines of an export.
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
			return fmt.Errorf("unreadable records: %q", page.Unreadable)
		}
		for _, r := range page.Records {
			if err := e.record(r); err != nil {
				return err
			}
		}
	}
	return e.lines.Encode(map[string]any{"kind": "end", "lines": e.counts})
}

// A line is the JSON object of one record. Missing values are null.
type line map[string]any

func (e *accountExport) line(kind string, l line) error {
	l["kind"] = kind
	e.counts[kind]++
	return e.lines.Encode(l)
}

// settings writes the line of a record, after adding the record's settings that l lacks.
func (e *accountExport) settings(kind string, r fields.Record, l line) error {
	object, err := fields.JSON(r, fields.Setting)
	if err != nil {
		return err
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(object, &settings); err != nil {
		return err
	}
	delete(settings, "threshold") // l has it as balanceThreshold
	for name, value := range settings {
		if _, given := l[name]; !given {
			l[name] = value
		}
	}
	return e.line(kind, l)
}

// record writes the line of a record, without its secrets and hashes.
func (e *accountExport) record(r transfer.Record) error {
	switch r := r.(type) {
	case *transfer.Key:
		return e.settings("key", (*listed.Key)(&r.Key), line{
			"id": r.ID, "name": r.Name, "scopes": r.Scopes.Names(), "createdAt": shownTime(r.CreatedAt), "expiresAt": shownTime(r.ExpiresAt),
			"lastUsedAt": shownTime(r.LastUsedAt), "previousValueExpiresAt": shownTime(r.PreviousExpiresAt), "previousValueUsedAt": shownTime(r.PreviousUsedAt),
			"resources": r.Resources.Names(), "allowedNetworks": r.AllowedNetworks.Names(), "networksUsed": r.NetworksUsed(), "scopesUsed": r.ScopesUsed(), "refusals": r.Refusals(),
			"disabled": r.Disabled, "labels": r.Labels.Map(),
			"hint": r.Hint, "previousValueHint": r.PreviousHint, "createdBy": r.CreatedBy.String(),
		})
	case *transfer.Webhook:
		return e.settings("webhook", (*listed.Webhook)(&r.Webhook), line{
			"id": r.ID, "url": r.URL, "events": r.Events, "active": r.Active, "offReason": r.OffReason, "balanceThreshold": shownThreshold(alerts.Amount(r.Threshold)),
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
		return e.line("alert", line{"metric": r.Series, "state": shownState(r.State)})
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
	return fmt.Errorf("unknown record kind %q", r.Kind())
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
		body = string(r.Body) // as text, because JSON readers may change numbers
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

// shownTime formats t as the API does. It returns nil if t is zero.
func shownTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func shownThreshold(amount alerts.Amount) any {
	if amount == 0 {
		return nil
	}
	return amount.String()
}

// shownState returns an alert's state as JSON, or as a string if it is not valid JSON.
func shownState(state []byte) any {
	if json.Valid(state) {
		return json.RawMessage(state)
	}
	return fmt.Sprintf("%q", state)
}
