package webhooks

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// A sender makes attempts, for deliveries and for test events.
type sender struct {
	client    *outbound.Client
	timeout   time.Duration
	now       func() time.Time
	receivers receivers
	traces    bool // send the traceparent to receivers
}

func newSender(guard *outbound.Guard, config Config) *sender {
	return &sender{
		client: outbound.New(outbound.Config{
			Dial: guard.Dial, Transport: config.Outbound.Transport, Check: guard.Check, RootCAs: config.Outbound.RootCAs, MaxIdle: config.Outbound.MaxIdleConns,
		}),
		timeout:   config.Outbound.Timeout,
		now:       config.Now,
		receivers: receivers{header: http.CanonicalHeaderKey(config.SignatureHeader), agent: config.Outbound.UserAgent},
		traces:    config.Outbound.SendTraceparent,
	}
}

// A result is the outcome of an attempt.
type result struct {
	attempt    Attempt
	tooLarge   bool           // 413: the event will not become smaller
	gone       bool           // 410: the receiver wants no more events
	retryAfter time.Duration  // from the receiver's Retry-After
	canceled   bool           // this process canceled the attempt
	fault      outbound.Fault // the side that failed, if there was no response
}

// fail records why the attempt failed.
func (r *result) fail(class ErrorClass, text string) { r.attempt.Class, r.attempt.Error = class, text }

// attempt sends the task's event to its webhook, once. It signs, sends, classifies the result and
// reads Retry-After. It takes at most the timeout, or two seconds more if this host may be the
// cause of a failure. It never panics. cancel ends it early.
func (s *sender) attempt(cancel *outbound.Canceler, task *task) (res result) {
	begun := time.Now() // real time: Config.Now may be another clock
	res.attempt.Number = task.Attempt
	defer func() {
		if p := recover(); p != nil {
			res.fail(ClassInternal, "panic") // the value could hold secrets
		}
		res.attempt.Duration = time.Since(begun).Truncate(time.Microsecond)
	}()
	started := s.now()
	res.attempt.StartedAt = started.UTC().Truncate(time.Millisecond)
	if task.Err != nil {
		res.fail(ClassInternal, "the stored record cannot be read")
		return res
	}
	request, err := s.sign(task, started)
	if err != nil {
		res.fail(ClassInternal, err.Error())
		return res
	}
	request.Deadline = begun.Add(s.timeout)

	response := s.client.Post(cancel, request)
	res.attempt.Status, res.attempt.Response = response.Status, response.Body
	res.canceled, res.fault = response.Canceled, response.Fault
	switch status := response.Status; {
	case status == 0:
		res.fail(ErrorClass(response.Failure.Kind), response.Failure.Text)
	case status >= 300 && status <= 399:
		res.fail(ClassRedirect, fmt.Sprintf("status %d: redirects are not followed", status))
	case status == http.StatusRequestEntityTooLarge && response.RetryAfter(s.now()) == 0: // with Retry-After, a 413 is temporary: RFC 9110, section 15.5.14
		res.tooLarge = true
		res.fail(ClassStatus, "status 413: the event is too large for the receiver, so it is not sent again")
	case status < 200 || status > 299:
		res.fail(ClassStatus, fmt.Sprintf("status %d", status))
	}
	res.gone = response.Status == http.StatusGone
	res.retryAfter = response.RetryAfter(s.now())
	return res
}

// sign returns the signed request for the task.
func (s *sender) sign(task *task, at time.Time) (outbound.Request, error) {
	receiver, err := s.receivers.of(task.Webhook, at)
	if err != nil {
		return outbound.Request{}, err
	}
	signed := make(http.Header, 4)
	receiver.signer.Sign(signed, task.Event.ID, at, task.Event.Body)
	header := []outbound.Field{{Name: signing.HeaderID}, {Name: signing.HeaderTimestamp}, {Name: signing.HeaderSignature}, {Name: s.receivers.header}}
	for i := range header {
		header[i].Value = signed.Get(header[i].Name)
	}
	standard, service := header[2].Value, header[3].Value
	if service == "" { // belongs to [signing.V1]
		header = header[:3]
	}
	if s.traces && isTraceparent(task.Event.TraceContext) {
		header = append(header, outbound.Field{Name: headerTraceparent, Value: task.Event.TraceContext})
	}
	return outbound.Request{
		Target:   receiver.target,
		Header:   header,
		Body:     task.Event.Body,
		Owner:    task.Webhook.Account,
		Standing: standingOf(task.Webhook),
		Secrets: func() []string { // the signing secrets, the signatures, and secret headers
			return append(headerSecrets(task.Webhook), task.Webhook.Secret.Reveal(), task.Webhook.PreviousSecret.Reveal(), standard, service)
		},
	}, nil
}

func standingOf(w *Webhook) outbound.Standing {
	switch {
	case w.Proven():
		return outbound.Proven
	case !w.FailingSince.IsZero():
		return outbound.Failing
	}
	return outbound.Untried
}

// SignatureHeader returns the name, in canonical form, of the request header with the signature
// of the body: see [Config.SignatureHeader].
func (s *WebhookService) SignatureHeader() string { return s.dispatcher.sender.receivers.header }

// RequestHeader returns the request header that this service sends in the given attempt for the
// event, with "[redacted]" in place of the signatures, and without Host, Content-Length, the
// webhook's own headers and the Traceparent of [Outbound.SendTraceparent]. It has the signature header
// even if the webhook signed without [signing.V1]. It is nil if the error class shows that no request
// was sent. After a timeout it is not nil, because the request may have been sent.
func (s *WebhookService) RequestHeader(eventID string, attempt Attempt) http.Header {
	switch attempt.Class {
	case ClassDNS, ClassBlocked, ClassConnect, ClassTLS, ClassInternal, ClassExpired, ClassResource:
		return nil
	}
	return http.Header{
		"Content-Type":          {contentType},
		"User-Agent":            {s.dispatcher.sender.receivers.agent},
		signing.HeaderID:        {eventID},
		signing.HeaderTimestamp: {strconv.FormatInt(attempt.StartedAt.Unix(), 10)},
		signing.HeaderSignature: {outbound.Redacted},
		s.SignatureHeader():     {outbound.Redacted},
	}
}
