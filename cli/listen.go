package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/storageapi/storageapi/client"
	"github.com/storageapi/storageapi/signing"
)

// listenPoll is the minimum interval between two reads at the end of the list, and the wait after the
// first refused post. Tests change it.
var listenPoll = time.Second

const (
	listenWait    = 20               // seconds for which the service may wait for an event
	listenMaxWait = 30 * time.Second // between two posts of an event
	listenTimeout = 15 * time.Second // timeout of a post, the same as for deliveries
)

// listen posts an account's events to a receiver, oldest first and one at a time. An event that the
// receiver does not accept with 2xx is posted again and again, and the following events wait. After
// each accepted post, listen records the event in the cursor file. It finishes a post under way
// when it is interrupted. Only if it is killed between the response and the record is the event
// posted twice, with the same Webhook-Id.
func listen(r *run) error {
	l := &listener{run: r}
	api := r.flags.String("api", "http://127.0.0.1:8080/v2", "the `URL` of the API; its key is in $KEY")
	r.flags.StringVar(&l.to, "to", "", "the `URL` of the receiver, such as http://localhost:3000/hook")
	from := r.flags.String("from", "", "`where` to begin: now, beginning, or cursor, where the last run ended; default: cursor, or now at the first run")
	r.flags.StringVar(&l.file, "cursor", "listen.cursor", "the `file` that records which events were accepted")
	r.listFlag(&l.types, "types", "only events of these types")
	header := r.flags.String("signature-header", "", "the `name` of the header with the signature of the body; default: X-Service-Signature")
	if _, err := r.parse(0, 0); err != nil {
		return err
	}
	if to, err := url.Parse(l.to); err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return usageError("set -to to the URL of the receiver")
	}
	if os.Getenv("KEY") == "" {
		return usageError("set KEY in the environment to an API key that may read events")
	}
	c, err := client.New(*api, os.Getenv("KEY"), client.Options{})
	if err != nil {
		return usageError(err.Error())
	}
	l.client = c
	if err := l.begin(*api, *from); err != nil {
		return err
	}
	secret := signing.NewSecret()
	if text := os.Getenv("WEBHOOK_SECRET"); text != "" { // the receiver still has the secret of an earlier run
		if secret, err = signing.ParseSecret(text); err != nil {
			return usageError("WEBHOOK_SECRET: " + err.Error())
		}
	} else if r.json {
		fmt.Fprintf(r.Stderr, "export WEBHOOK_SECRET=%s\n", secret.Reveal())
	} else {
		fmt.Fprintf(r.Stdout, "export WEBHOOK_SECRET=%s\n", secret.Reveal())
	}
	if l.signer, err = signing.NewSigner(*header, secret); err != nil {
		return usageError(err.Error())
	}
	for {
		err := l.page()
		if err != nil && r.ctx.Err() == nil && mayPass(err) {
			fmt.Fprintf(r.Stderr, "%v: again in %v\n", err, listenMaxWait)
			err = l.sleep(listenMaxWait)
		}
		switch {
		case r.ctx.Err() != nil:
			return nil // interrupted, as intended
		case err != nil:
			return err
		}
	}
}

// mayPass reports whether an error of the service may be temporary.
func mayPass(err error) bool {
	if refusal, ok := errors.AsType[*client.Error](err); ok {
		return refusal.Status == http.StatusTooManyRequests || refusal.Status >= http.StatusInternalServerError
	}
	_, request := errors.AsType[*url.Error](err)
	_, network := errors.AsType[*net.OpError](err)
	return request || network || errors.Is(err, io.ErrUnexpectedEOF)
}

// A listener is the state of a running listen command.
type listener struct {
	*run
	client *client.Client
	signer *signing.Signer
	to     string
	types  []string
	file   string // stores at
	at     position
}

// A position is a listener's place in the list of events.
type position struct {
	API    string    `json:"api"`
	Since  time.Time `json:"since"`
	Types  []string  `json:"types,omitzero"`
	Cursor string    `json:"cursor,omitzero"` // of the current page
	Done   []string  `json:"done,omitzero"`   // events of the current page that were accepted
}

// begin sets the position.
func (l *listener) begin(api, from string) error {
	text, err := os.ReadFile(l.file)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case from == "" && err != nil:
		from = "now"
	case from == "cursor" && err != nil:
		return err
	}
	l.at = position{API: api, Types: l.types, Since: time.Unix(0, 0).UTC()}
	switch from {
	case "beginning":
	case "now":
		if err := l.skip(); err != nil {
			return err
		}
	case "", "cursor":
		var at position
		if err := json.Unmarshal(text, &at); err != nil {
			return fmt.Errorf("cannot read %s: %w", l.file, err)
		}
		if at.API != api || !slices.Equal(at.Types, l.types) {
			return fmt.Errorf("cursor file %s was saved with another -api or other -types: use the same again, or set -cursor or -from", l.file)
		}
		l.at = at
	default:
		return usageError("-from must be now, beginning or cursor")
	}
	return l.record()
}

// skip goes to the end of the list.
func (l *listener) skip() error {
	for event, err := range l.client.Events(l.ctx, client.EventQuery{Types: l.types, Limit: 1}) { // newest first
		if err != nil {
			return err
		}
		l.at.Since = event.PublishedAt
		break
	}
	for { // skip all events with this time
		page, err := l.list(0)
		if err != nil {
			return err
		}
		if l.at.Cursor = page.NextCursor; !page.HasMore {
			return nil
		}
	}
}

// list reads the current page. If it would be empty, list waits for an event.
func (l *listener) list(seconds int) (client.Page[client.Event], error) {
	page, err := l.client.ListEvents(l.ctx, client.EventQuery{Types: l.types, Since: l.at.Since, Cursor: l.at.Cursor, WaitSeconds: seconds})
	if err == nil && page.NextCursor == "" {
		err = errors.New("the list of events has no cursor")
	}
	return page, err
}

// record makes the position durable.
func (l *listener) record() error {
	return replaceFile(l.file, func(w io.Writer) error { return json.NewEncoder(w).Encode(l.at) })
}

// page posts the events of the current page and goes to the next one.
func (l *listener) page() error {
	begun := time.Now()
	page, err := l.list(listenWait)
	if err != nil {
		return err
	}
	for _, event := range page.Data {
		if slices.Contains(l.at.Done, event.ID) {
			continue
		}
		result, err := l.event(event)
		if err != nil {
			return err
		}
		l.at.Done = append(l.at.Done, event.ID)
		if err := errors.Join(l.record(), l.tell(event, result)); err != nil {
			return err
		}
	}
	if page.NextCursor != l.at.Cursor {
		l.at.Cursor, l.at.Done = page.NextCursor, nil
		if err := l.record(); err != nil {
			return err
		}
	}
	if page.HasMore || len(page.Data) > 0 {
		return nil
	}
	return l.sleep(listenPoll - time.Since(begun)) // a busy service returns an empty page without waiting
}

func (l *listener) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// event posts an event until it is accepted, and returns the result. It skips an event without a
// body.
func (l *listener) event(event client.Event) (result string, err error) {
	body, err := l.client.EventBody(l.ctx, event.ID)
	if refusal, ok := errors.AsType[*client.Error](err); ok && refusal.Status == http.StatusNotFound && refusal.Code == "NOT_FOUND" { // a proxy's 404 has no code
		return "skipped: its body is not stored", nil
	}
	if err != nil {
		return "", err
	}
	for wait := listenPoll; ; wait = min(2*wait, listenMaxWait) {
		status, err := l.post(event, body)
		result := fmt.Sprint(status)
		switch {
		case err != nil:
			result = err.Error()
		case status >= 200 && status <= 299:
			return result, nil
		}
		if err := errors.Join(l.tell(event, fmt.Sprintf("%s: again in %v", result, wait)), l.sleep(wait)); err != nil {
			return "", err
		}
	}
}

// tell prints the result of a post.
func (l *listener) tell(event client.Event, result string) error {
	if l.json {
		return json.NewEncoder(l.Stdout).Encode(map[string]string{"event": event.ID, "type": event.Type, "result": result})
	}
	_, err := fmt.Fprintf(l.Stdout, "%s %s %s\n", event.ID, event.Type, result)
	return err
}

// receivers posts events. Redirects are not followed, as for deliveries.
var receivers = &http.Client{
	Timeout:       listenTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// post posts an event once. It is not interrupted, because the receiver may already have handled
// the event.
func (l *listener) post(event client.Event, body []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(context.WithoutCancel(l.ctx), http.MethodPost, l.to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", cmp.Or(l.Name, "listen")+" listen")
	l.signer.Sign(request.Header, event.ID, time.Now(), body)
	response, err := receivers.Do(request)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
	return response.StatusCode, response.Body.Close()
}
