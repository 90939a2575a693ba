package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// A Webhook is an endpoint that receives events.
type Webhook struct {
	ID                      string    `json:"id"`
	URL                     string    `json:"url"`
	Events                  []string  `json:"events"`
	Resources               []string  `json:"resources,omitzero"` // only their events are sent; nil means no limit
	Active                  bool      `json:"active"`
	Held                    bool      `json:"held,omitzero"`   // on hold after a restore of the service
	Paused                  bool      `json:"paused,omitzero"` // events wait until the pause ends
	PausedUntil             time.Time `json:"pausedUntil,omitzero"`
	Secret                  Secret    `json:"secret,omitzero"` // only in the results of CreateWebhook and RotateWebhookSecret
	CreatedAt               time.Time `json:"createdAt"`
	BalanceThreshold        string    `json:"balanceThreshold,omitzero"` // empty means the service's default
	OffReason               string    `json:"offReason,omitzero"`        // why the service turned it off: "gone" or "failing"
	FailingSince            time.Time `json:"failingSince,omitzero"`
	PreviousSecretExpiresAt time.Time `json:"previousSecretExpiresAt,omitzero"`

	Headers map[string]Header `json:"headers,omitzero"` // sent with each request, by name

	// EventScopes are set if Events is "*": only events of types with these scopes are sent.
	EventScopes []string `json:"eventScopes,omitzero"`
	Signatures  []string `json:"signatures,omitzero"` // "v1" or "v1a"; nil means only v1
	PublicKeys  []string `json:"publicKeys,omitzero"` // for v1a, the current one first, "whpk_…"

	ETag string `json:"-"` // for [IfMatch]; empty in the results of CreateWebhook and Webhooks
}

func (w *Webhook) setETag(tag string) { w.ETag = tag }

// A Header is a header field of the requests to a webhook.
type Header struct {
	Value  string `json:"value"` // in results empty if Secret
	Secret bool   `json:"secret"`
}

// CreateWebhook are the parameters of a new webhook. Printing it shows Secret and secret headers.
type CreateWebhook struct {
	URL              string   `json:"url"`
	Events           []string `json:"events"`                    // or only "*": all types, including future ones
	Resources        []string `json:"resources,omitzero"`        // only their events are sent; nil means no limit
	BalanceThreshold string   `json:"balanceThreshold,omitzero"` // a decimal number, for balance.low
	Secret           string   `json:"secret,omitzero"`           // "whsec_…"; empty means a new one

	Headers map[string]Header `json:"headers,omitzero"` // by name

	Signatures []string `json:"signatures,omitzero"` // "v1", "v1a" or both; nil means v1
}

// UpdateWebhook changes the fields that are set.
type UpdateWebhook struct {
	URL              Opt[string]   `json:"url,omitzero"`
	Events           Opt[[]string] `json:"events,omitzero"`
	Active           Opt[bool]     `json:"active,omitzero"`
	Resources        Opt[[]string] `json:"resources,omitzero"`
	BalanceThreshold Opt[string]   `json:"balanceThreshold,omitzero"`

	Paused      Opt[bool]              `json:"paused,omitzero"`      // false ends a pause
	PausedUntil Opt[time.Time]         `json:"pausedUntil,omitzero"` // pauses until then
	Headers     map[string]Opt[Header] `json:"headers,omitzero"`     // Null removes a header; headers not in the map stay
	Signatures  Opt[[]string]          `json:"signatures,omitzero"`
}

// Tested is the result of a test event.
type Tested struct {
	ID      string  `json:"id"` // the event's ID
	Type    string  `json:"type"`
	Attempt Attempt `json:"attempt"`
}

// An Attempt is one try to deliver an event.
type Attempt struct {
	Number     int       `json:"number"`
	StartedAt  time.Time `json:"startedAt"`
	DurationMS float64   `json:"durationMs"`
	Status     int       `json:"status,omitzero"`     // 0 if there was no response
	ErrorClass string    `json:"errorClass,omitzero"` // empty for a success
	Error      string    `json:"error,omitzero"`
	Response   string    `json:"response,omitzero"` // the receiver's text, which is not trustworthy
}

// A Delivery is the state of an event's delivery to a webhook.
type Delivery struct {
	EventID       string    `json:"eventId"`
	Type          string    `json:"type"`
	Resource      string    `json:"resource,omitzero"` // empty means none in particular
	State         string    `json:"state"`             // "pending", "delivered", "dead" or "skipped"
	PublishedAt   time.Time `json:"publishedAt"`
	BodyKeptUntil time.Time `json:"bodyKeptUntil,omitzero"`
	NextAttemptAt time.Time `json:"nextAttemptAt,omitzero"`

	Attempts []Attempt `json:"attempts,omitzero"` // nil in lists

	// Only in lists.
	AttemptCount int      `json:"attemptCount,omitzero"`
	LastAttempt  *Attempt `json:"lastAttempt,omitzero"`
}

// A DeliveryQuery selects deliveries. The zero value selects all.
type DeliveryQuery struct {
	States []string  `json:"state,omitzero"`
	Types  []string  `json:"type,omitzero"`
	Failed bool      `json:"failed,omitzero"` // only dead, skipped, and pending after a failed attempt
	From   time.Time `json:"from,omitzero"`   // published at this time or later
	To     time.Time `json:"to,omitzero"`     // published before this time
}

// An Explanation says why an event was or was not delivered to a webhook.
type Explanation struct {
	EventID     string    `json:"eventId"`
	WebhookID   string    `json:"webhookId"`
	Type        string    `json:"type"`
	Resource    string    `json:"resource,omitzero"` // empty means none in particular
	PublishedAt time.Time `json:"publishedAt"`
	Reason      string    `json:"reason"`         // such as "not_subscribed" or "circuit_open"
	Summary     string    `json:"summary"`        // for people
	State       string    `json:"state,omitzero"` // the delivery's state; empty if there is no delivery
	LastAttempt *Attempt  `json:"lastAttempt,omitzero"`
	Since       time.Time `json:"since,omitzero"`     // when the webhook was turned off
	Until       time.Time `json:"until,omitzero"`     // the pause's end, or when the next attempt is due
	AsOfNow     bool      `json:"asOfNow,omitzero"`   // the explanation uses the webhook's current settings, which may differ from those at publication
	ChangedAt   time.Time `json:"changedAt,omitzero"` // when the webhook's types or resources changed after the publication
	Elsewhere   bool      `json:"elsewhere,omitzero"` // the answering process does not know whether the receiver is down
}

// CreateRecovery selects the deliveries to make again. The zero CreateRecovery selects all dead and
// skipped deliveries.
type CreateRecovery struct {
	From   time.Time `json:"from,omitzero"` // published at this time or later
	To     time.Time `json:"to,omitzero"`   // published before this time
	States []string  `json:"states,omitzero"`
}

// A Recovery is a job that makes deliveries of a webhook again.
type Recovery struct {
	ID        string    `json:"id"`
	WebhookID string    `json:"webhookId"`
	States    []string  `json:"states"`
	From      time.Time `json:"from,omitzero"`
	To        time.Time `json:"to,omitzero"`
	CreatedAt time.Time `json:"createdAt"`
	Recovered int       `json:"recovered"` // how many deliveries are pending again
	Done      bool      `json:"done"`
}

const webhooksPath = "/notifications/webhooks"

func webhookPath(id string) string { return webhooksPath + "/" + url.PathEscape(id) }

func deliveryPath(webhookID, eventID string) string {
	return webhookPath(webhookID) + "/deliveries/" + url.PathEscape(eventID)
}

// CreateWebhook creates a webhook. The result is the only one that contains its secret.
func (c *Client) CreateWebhook(ctx context.Context, p CreateWebhook, options ...CallOption) (Webhook, error) {
	return create[Webhook](ctx, c, webhooksPath, p, options)
}

// Webhooks returns an iterator over the webhooks, newest first. It stops after the first error.
func (c *Client) Webhooks(ctx context.Context) iter.Seq2[Webhook, error] {
	return all[Webhook](ctx, c, webhooksPath, nil)
}

// Webhook returns a webhook.
func (c *Client) Webhook(ctx context.Context, id string) (Webhook, error) {
	return get[Webhook](ctx, c, webhookPath(id))
}

// UpdateWebhook changes a webhook and returns it.
func (c *Client) UpdateWebhook(ctx context.Context, id string, p UpdateWebhook, options ...CallOption) (webhook Webhook, err error) {
	_, err = c.do(ctx, http.MethodPatch, webhookPath(id), p, &webhook, true, options)
	return webhook, err
}

// DeleteWebhook deletes a webhook and its pending deliveries.
func (c *Client) DeleteWebhook(ctx context.Context, id string, options ...CallOption) error {
	return c.remove(ctx, webhookPath(id), options)
}

// RotateWebhookSecret gives a webhook a new secret, which only the result contains.
func (c *Client) RotateWebhookSecret(ctx context.Context, id string, p Rotation, options ...CallOption) (webhook Webhook, err error) {
	_, err = c.do(ctx, http.MethodPost, webhookPath(id)+"/rotate-secret", p, &webhook, false, options)
	return webhook, err
}

// TestWebhook sends a test event and returns the result within 16 seconds. If eventType is empty,
// the event is a webhook.test, otherwise the example of that type.
func (c *Client) TestWebhook(ctx context.Context, id, eventType string) (tested Tested, err error) {
	params := struct {
		Type string `json:"type,omitzero"`
	}{eventType}
	_, err = c.do(ctx, http.MethodPost, webhookPath(id)+"/test", params, &tested, false, nil)
	return tested, err
}

// Deliveries returns an iterator over a webhook's deliveries, newest first. It stops after the first
// error.
func (c *Client) Deliveries(ctx context.Context, webhookID string, query DeliveryQuery) iter.Seq2[Delivery, error] {
	return all[Delivery](ctx, c, webhookPath(webhookID)+"/deliveries", query)
}

// Delivery returns a delivery with its attempts.
func (c *Client) Delivery(ctx context.Context, webhookID, eventID string) (Delivery, error) {
	return get[Delivery](ctx, c, deliveryPath(webhookID, eventID))
}

// DeliveryBody returns the exact bytes that were signed and sent.
func (c *Client) DeliveryBody(ctx context.Context, webhookID, eventID string) ([]byte, error) {
	return c.body(ctx, deliveryPath(webhookID, eventID)+"/body")
}

// Explain returns why an event was or was not delivered to a webhook.
func (c *Client) Explain(ctx context.Context, webhookID, eventID string) (Explanation, error) {
	return get[Explanation](ctx, c, deliveryPath(webhookID, eventID)+"/explanation")
}

// Redeliver makes a delivery pending again and due now.
func (c *Client) Redeliver(ctx context.Context, webhookID, eventID string) (delivery Delivery, err error) {
	_, err = c.do(ctx, http.MethodPost, deliveryPath(webhookID, eventID)+"/redeliver", nil, &delivery, false, nil)
	return delivery, err
}

// CreateRecovery starts a job that makes deliveries pending again. [Client.Recovery] returns its
// progress.
func (c *Client) CreateRecovery(ctx context.Context, webhookID string, p CreateRecovery) (recovery Recovery, err error) {
	_, err = c.do(ctx, http.MethodPost, webhookPath(webhookID)+"/recoveries", p, &recovery, false, nil)
	return recovery, err
}

// Recovery returns a recovery.
func (c *Client) Recovery(ctx context.Context, webhookID, id string) (Recovery, error) {
	return get[Recovery](ctx, c, webhookPath(webhookID)+"/recoveries/"+url.PathEscape(id))
}

func (c *Client) body(ctx context.Context, path string) ([]byte, error) {
	var body limitedBuffer
	_, err := c.do(ctx, http.MethodGet, path, nil, &body, true, nil)
	return body.Bytes(), err
}

// A limitedBuffer accepts up to maxBody bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxBody {
		return 0, errors.New("the body is too large")
	}
	return b.Buffer.Write(p)
}

// ReadFrom hides the unlimited method of the Buffer from io.Copy.
func (b *limitedBuffer) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}
