package webhooks

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/alerting"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// Config configures a [WebhookService]. The zero Config works. A host sets Events, Outbound for
// receivers in its own network, and Alerts if it reports usage; the rest is for tuning.
type Config struct {
	// SignatureHeader is the request header that carries the signature of the body, see
	// docs/spec.md, section 6. Default: X-Service-Signature.
	SignatureHeader string

	// Events declares event types of the host's own, in addition to those of docs/spec.md,
	// section 6; at most 122. Webhooks keep a type that is no longer declared: pending
	// deliveries are made, and a caller that holds all scopes can change the webhook. Default: none.
	Events []EventDeclaration

	// MaxPerAccount is how many webhooks an account may have; negative: any
	// number. Default: 100.
	MaxPerAccount int

	// Retry is when failed attempts are made again, and when a webhook is disabled.
	Retry RetryPolicy

	// Concurrency limits the attempts under way.
	Concurrency Concurrency

	// Outbound is how receivers are connected to, and which are allowed.
	Outbound Outbound

	// Retention is how long events and attempts are kept.
	Retention Retention

	// Alerts is what the Report methods publish, and when.
	Alerts Alerts

	// Logger logs deliveries that are given up, webhooks that are disabled and failures
	// of the store, and at debug level each attempt. Default: slog.Default().
	Logger *slog.Logger

	// Observe is called with what is published, claimed, attempted and recorded, and with
	// changes of webhooks, in addition to storageapi.Config.Observe. Default: not called.
	Observe observe.Observer

	// TraceContext returns the trace context to keep with an event that is published, or that
	// follows from a report, in ctx: at most 64 visible ASCII characters, such as the W3C
	// traceparent of its span; others are dropped. Each attempt reports it as
	// [observe.Attempt.TraceContext], also days later and in another process. It must be fast
	// and safe for concurrent use. Default: none. Set it if you trace requests: package
	// otelstorage has one.
	TraceContext func(ctx context.Context) string

	// Now is the clock for creation times, event timestamps and signatures. Due times
	// go by the store's clock. Default: time.Now.
	Now func() time.Time
}

// RetryPolicy is when failed attempts are made again, and when a webhook is disabled. See
// [Config.Retry].
type RetryPolicy struct {
	// Delays are the waits between an attempt and the next. A delivery is dead after the last
	// of them. An empty slice that is not nil means one attempt only. Default: [DefaultRetries].
	Delays []time.Duration

	// Jitter is the maximum random deviation of each wait, as a fraction: 0.2 is ±20 %. At
	// most 1; negative: none. Default: 0.2.
	Jitter float64

	// DisableAfter is how long a webhook may fail continuously before it is disabled, whether
	// or not attempts are made meanwhile. The host gets an audit entry at half the time, at least 12
	// hours (or half of DisableAfter, if that is less) before the webhook is disabled, and
	// another one then. Failures of a single event do not disable it. Negative: never.
	// Default: 5 days.
	DisableAfter time.Duration
}

// Concurrency limits the attempts that are under way at a time. See [Config.Concurrency].
type Concurrency struct {
	// Total is for all accounts together, at most 100,000. Default: 1,024.
	Total int

	// PerAccount is for the webhooks of one account, at most Total. Default: half of Total, or
	// PerWebhook if that is more.
	PerAccount int

	// PerWebhook is for one webhook whose receiver has shown that it can take as many; at most
	// PerAccount. Default: 16, or PerAccount or Total if that is less.
	PerWebhook int
}

// Outbound is how receivers are connected to, and which are allowed. See [Config.Outbound].
type Outbound struct {
	// AllowNetworks are networks that are otherwise refused: those of IANA's special-purpose
	// registries, such as loopback and private ones. For tests and self-hosters. Default: none.
	AllowNetworks []netip.Prefix

	// AllowHosts are host names that may resolve to any address: receivers in the host's own
	// network. Each is one name in ASCII, without a wildcard; case does not matter. TLS is
	// verified as for others. Addresses belong into AllowNetworks. Default: none.
	AllowHosts []string

	// RootCAs are the certificate authorities that receivers' certificates must chain up to.
	// Default: the system's.
	RootCAs *x509.CertPool

	// Timeout is for one attempt as a whole: name lookup, connection, TLS, request and the
	// header of the response. Default: 15 s.
	Timeout time.Duration

	// DrainTimeout is how long Run waits at its end for attempts under way, before it cancels
	// them and returns their deliveries; negative: not at all. Default: Timeout.
	DrainTimeout time.Duration

	// MaxIdleConns is how many idle connections to receivers are kept open in all. Each is
	// closed after 90 s. A delivery without one begins with a TLS handshake, which takes more
	// than ten times the processor time of the rest: if events go to twice as many hosts in
	// turn as there are connections, more than half of all deliveries do.
	//
	// Each connection has a descriptor and, with its TLS session, 13 to 20 KB of memory, and as
	// much again until the next garbage collection. Sessions, 5 KB each, are kept for twice as
	// many hosts. Connections are also closed while they and those in use are more than three
	// quarters of the descriptors that the process may open (RLIMIT_NOFILE).
	//
	// Raise it, and the limit of descriptors, if events go to more hosts; lower it if memory or
	// descriptors are short. At most 1,000,000; negative: none is kept. Default: 16,384, but at
	// most half of the descriptors, and 1 for each 240 KiB of GOMEMLIMIT. Run logs it, and
	// Stats has it.
	MaxIdleConns int

	// SendTraceparent sends the event's trace context, if it is a W3C traceparent, to receivers
	// in the header of that name, so that their traces join yours. It reveals the IDs of your
	// traces, and is not signed. Default: not sent.
	SendTraceparent bool
}

// Alerts is what the Report methods publish, and when. See [Config.Alerts].
type Alerts struct {
	// DefaultBalanceThreshold is for webhooks that subscribe to balance.low without a threshold
	// of their own. It should be the same on all nodes that share a store. Default: none; these
	// webhooks then get no balance.low from [WebhookService.ReportBalance].
	DefaultBalanceThreshold Amount

	// BalanceHysteresis is how far a low balance must rise above its threshold before the next
	// balance.low is possible. Default: not at all; reaching the threshold is enough.
	BalanceHysteresis Amount

	// ApproachingRatios are the fractions of a limit at which it is approaching, to a
	// millionth: an event is sent for each. More than 0, less than 1, at most 20. An
	// empty slice that is not nil means none. Default: 0.8.
	ApproachingRatios []float64

	// FileLeads are the times before a file's expiry at which it is expiring: an event is sent
	// for each. At most 20, each at most ten years. Default: 7 days and 1 day.
	FileLeads []time.Duration

	// Files yields the host's files, for Run to scan for expiring ones. Default: none; the
	// host calls [WebhookService.ReportFiles].
	Files FileSource

	// FileScanInterval is the time between the beginnings of two scans; at least a
	// second. Default: an hour.
	FileScanInterval time.Duration
}

// withDefaults returns a copy with the defaults filled in, or an error that names
// the first field that is invalid.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.SignatureHeader, signing.DefaultHeader)
	setDefault(&c.MaxPerAccount, 100)
	setDefault(&c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, check := range []func() error{c.Retry.check, c.Concurrency.check, c.Outbound.check, c.Alerts.check} {
		if err := check(); err != nil {
			return c, err
		}
	}
	var err error
	if c.Retention, err = c.Retention.withDefaults(c.Retry.Delays, c.Retry.Jitter); err != nil {
		return c, err
	}
	// The signer decides whether the header can be used.
	if _, err := signing.NewSigner(c.SignatureHeader, signing.NewSecret()); err != nil {
		return c, fmt.Errorf("SignatureHeader: %w", err)
	}
	if reserved(c.SignatureHeader) {
		return c, invalid("SignatureHeader", "must not be a header with a meaning of its own")
	}
	return c, nil
}

// check fills in the defaults, or returns an error that names the first field that is invalid.
func (r *RetryPolicy) check() error {
	if r.Delays == nil {
		r.Delays = DefaultRetries()
	}
	r.Delays = slices.Clone(r.Delays)
	setDefault(&r.Jitter, retryJitter)
	setDefault(&r.DisableAfter, 5*day)
	switch {
	case slices.ContainsFunc(r.Delays, func(d time.Duration) bool { return d < 0 }):
		return invalid("Retry.Delays", "must not be negative")
	case !(r.Jitter <= 1): // NaN, too
		return invalid("Retry.Jitter", "must be at most 1")
	}
	r.Jitter = max(r.Jitter, 0)
	return nil
}

// check fills in the defaults, or returns an error that names the first field that is invalid.
func (c *Concurrency) check() error {
	setDefault(&c.Total, 1024)
	setDefault(&c.PerWebhook, min(16, c.Total, cmp.Or(c.PerAccount, c.Total)))
	setDefault(&c.PerAccount, min(max(c.Total/2, c.PerWebhook), c.Total))
	switch {
	case c.Total < 1 || c.Total > 100_000:
		return invalid("Concurrency.Total", "must be from 1 to 100,000")
	case c.PerAccount < 1 || c.PerAccount > c.Total:
		return invalid("Concurrency.PerAccount", fmt.Sprintf("must be from 1 to Concurrency.Total, which is %d", c.Total))
	case c.PerWebhook < 1 || c.PerWebhook > c.PerAccount:
		return invalid("Concurrency.PerWebhook", fmt.Sprintf("must be from 1 to Concurrency.PerAccount, which is %d", c.PerAccount))
	}
	return nil
}

// check fills in the defaults, or returns an error that names the first field that is invalid.
func (o *Outbound) check() error {
	setDefault(&o.Timeout, 15*time.Second)
	setDefault(&o.DrainTimeout, o.Timeout)
	setDefault(&o.MaxIdleConns, outbound.DefaultMaxIdle())
	o.AllowNetworks = slices.Clone(o.AllowNetworks)
	switch {
	case o.Timeout < 0:
		return invalid("Outbound.Timeout", "must be positive")
	case o.MaxIdleConns > 1_000_000:
		return invalid("Outbound.MaxIdleConns", "must be at most 1,000,000")
	case slices.ContainsFunc(o.AllowNetworks, func(p netip.Prefix) bool { return !p.IsValid() || p.Addr().Is4In6() }):
		return invalid("Outbound.AllowNetworks", "must hold valid prefixes only, IPv4 ones as such")
	case slices.ContainsFunc(o.AllowHosts, func(host string) bool { return !outbound.IsHostName(host) }):
		return invalid("Outbound.AllowHosts", "must hold host names only, such as hooks.internal; addresses belong into Outbound.AllowNetworks")
	}
	return nil
}

// check fills in the defaults, or returns an error that names the first field that is invalid.
func (a *Alerts) check() error {
	if a.ApproachingRatios == nil {
		a.ApproachingRatios = []float64{0.8}
	}
	if a.FileLeads == nil {
		a.FileLeads = []time.Duration{7 * day, day}
	}
	setDefault(&a.FileScanInterval, time.Hour)
	switch {
	case slices.ContainsFunc(a.ApproachingRatios, func(r float64) bool { return !(r >= 1e-6 && r < 1) || alerting.Level(r) >= alerting.Reached }): // NaN, too
		return invalid("Alerts.ApproachingRatios", "must be more than 0 and less than 1")
	case len(a.ApproachingRatios) > 20:
		return invalid("Alerts.ApproachingRatios", "must be at most 20")
	case len(a.FileLeads) == 0 || len(a.FileLeads) > 20:
		return invalid("Alerts.FileLeads", "must be from 1 to 20")
	case slices.ContainsFunc(a.FileLeads, func(d time.Duration) bool { return d <= 0 || d > maxLead }):
		return invalid("Alerts.FileLeads", fmt.Sprintf("must be positive, and at most %v", maxLead))
	case a.FileScanInterval < time.Second:
		return invalid("Alerts.FileScanInterval", "must be at least a second")
	}
	return nil
}

// setDefault gives an unset field its default.
func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

// reserved reports whether the delivery's request uses the header already.
func reserved(header string) bool {
	switch http.CanonicalHeaderKey(header) {
	case "Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "User-Agent", "Trailer", "Te", "Upgrade", headerTraceparent:
		return true
	}
	return false
}

// maxLead is ten years, which bounds for how long deduplication keys are kept.
const maxLead = 3652 * day

// policy returns the policy of an Alerts with its defaults.
func (a *Alerts) policy() alerting.Policy {
	return alerting.NewPolicy(uint64(a.DefaultBalanceThreshold), uint64(a.BalanceHysteresis), a.ApproachingRatios, a.FileLeads)
}
