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
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/alerting"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// Config configures a [WebhookService]. The zero Config works.
type Config struct {
	// SignatureHeader is the request header that carries the signature of the body, see
	// docs/spec.md, section 6. Default: X-Service-Signature.
	SignatureHeader string

	// Timeout is how long one attempt may take in all: looking up the name,
	// connecting, TLS, sending, and the response's header. Default: 15 s.
	Timeout time.Duration

	// Retries are the waits between an attempt and the next; when they are used
	// up the delivery is dead. An empty slice that is not nil means one attempt
	// only. Default: [DefaultRetries].
	Retries []time.Duration

	// RetryJitter is by what part of itself each of these waits may be shorter
	// or longer, at random; at most 1; negative: not at all. Default: 0.2.
	RetryJitter float64

	// FailingLimit is after how long of nothing but failed attempts a webhook is
	// turned off, whether or not any is made just then; there is a notice of it, at half the
	// time, and when it happens. Failures of one event alone do not turn it off, and it
	// stays on for 12 hours after the host was told, or half of FailingLimit if that is
	// less. Negative: never. Default: 5 days.
	FailingLimit time.Duration

	// Concurrency is how many attempts are made at a time, at most 100,000.
	// Default: 1,024.
	Concurrency int

	// PerAccount is how many of them may be to the webhooks of one account, at
	// most Concurrency. Default: half of Concurrency, or PerWebhook if that is
	// more.
	PerAccount int

	// PerWebhook is how many of them may be to one webhook, once its receiver
	// has shown that it can take them; at most PerAccount. Default: 16, or
	// PerAccount or Concurrency if that is less.
	PerWebhook int

	// MaxIdleConns is how many connections to receivers are kept open between attempts, in
	// all, and so about how many receivers' hosts fit. One that was idle for 90 s is
	// closed. A delivery to a host without one begins with a TLS handshake, which takes more
	// than ten times the processor time of the rest: with twice as many hosts as
	// connections more than half of all deliveries do, if events go to one host after the
	// other. Each connection holds a descriptor and, with its TLS session, 13 to 20 KB of
	// memory, and as much again until the next garbage collection; the session, 5 KB of
	// that, is kept for twice as many hosts. Raise it, and the limit of descriptors, if
	// events go to more hosts; lower it where memory or descriptors are short. Idle
	// connections are closed while they and those in use are more than three quarters of
	// the descriptors that the process may open (RLIMIT_NOFILE). At most 1,000,000;
	// negative: none is kept. Default: 16,384, but at most half of the descriptors, and 1
	// for each 240 KiB of GOMEMLIMIT. Run logs it, and Stats has it.
	MaxIdleConns int

	// DrainTimeout is how long Run goes on with attempts under way once it is
	// to end, before it cuts them short and gives them back; negative: not at
	// all. Default: Timeout.
	DrainTimeout time.Duration

	// MaxPerAccount is how many webhooks an account may have; negative: any
	// number. Default: 100.
	MaxPerAccount int

	// Retention is how long events and attempts are kept.
	Retention Retention

	// AllowNetworks opens networks for delivery that are refused otherwise: all
	// that IANA's special-purpose registries list, such as loopback and private
	// ones. For tests and self-hosters. Default: none.
	AllowNetworks []netip.Prefix

	// AllowHosts opens host names for delivery wherever they lead, by any
	// address: receivers in the host's own network. Each is one name, without
	// a wildcard, in ASCII; case does not matter. TLS is verified as ever. An
	// address is for AllowNetworks. Default: none.
	AllowHosts []string

	// RootCAs are the certificate authorities that receivers are verified
	// against. Default: the system's.
	RootCAs *x509.CertPool

	// DefaultBalanceThreshold is for webhooks that subscribe to balance.low and
	// have no threshold of their own. Nodes that share a store should have the
	// same one. Default: none, so that these get no balance.low from
	// [WebhookService.ReportBalance].
	DefaultBalanceThreshold Amount

	// BalanceHysteresis is how far above its threshold a balance must come,
	// after it was low, for the next balance.low to be possible. Default: not at
	// all; at the threshold is enough.
	BalanceHysteresis Amount

	// ApproachingRatios are at what parts of a limit it is approaching, to a
	// millionth: an event is sent for each. More than 0, less than 1, at most 20. An
	// empty slice that is not nil means none. Default: 0.8.
	ApproachingRatios []float64

	// FileLeads are for how long before its expiry a file is expiring: it is
	// told of once for each. At most 20, each at most ten years. Default: 7 days
	// and 1 day.
	FileLeads []time.Duration

	// Files yields the host's files, for Run to scan for those that expire.
	// Default: none; the host calls [WebhookService.ReportFiles].
	Files FileSource

	// FileScanInterval is from one beginning of a scan to the next; at least a
	// second. Default: an hour.
	FileScanInterval time.Duration

	// Events declares event types of the host's own, in addition to those of docs/spec.md,
	// section 6; at most 122. A type that is not declared any more stays in the webhooks
	// that are subscribed to it: what is pending is delivered, and their settings can be
	// changed by who holds all scopes. Default: none.
	Events []EventDeclaration

	// Scopes are the scopes that Events may name. Default: those of docs/spec.md, section
	// 5. storageapi.Config.Scopes sets it.
	Scopes *scopes.Vocabulary

	// Notify says that the notices of what happens to webhooks wait until the host has taken
	// them. storageapi.Config.Notify sets it. Default: they are kept, and wait for nothing.
	Notify bool

	// Logger is told of deliveries given up, webhooks turned off and failures
	// of the store, and at debug level of each attempt. Default:
	// slog.Default().
	Logger *slog.Logger

	// Observe is told of what is published, claimed, attempted and recorded, and of the changes of
	// webhooks. storageapi.Config.Observe is told as well. Default: nothing is told.
	Observe observe.Observer

	// TraceContext returns what to keep with an event that is published, or follows from a
	// report, in that context: at most 64 visible ASCII characters, such as the W3C traceparent
	// of its span. It comes back with each attempt, as [observe.Attempt.TraceContext], also days later
	// and in another process. What is longer, or other characters, is left out. It must be quick, and is called by
	// many at once. Default: none. Set it where you trace requests: package otelstorage has one.
	TraceContext func(ctx context.Context) string

	// SendTraceparent sends the TraceContext of events, where it is a W3C traceparent, to
	// receivers, in the header of that name: their traces join yours. It tells them the ids
	// of your traces, and is not signed. Default: not sent.
	SendTraceparent bool

	// Now is the clock for creation times, event timestamps and signatures.
	// When deliveries are due is the store's business. Default: time.Now.
	Now func() time.Time
}

// withDefaults returns a copy with the defaults filled in, or an error that names
// the first field that makes no sense.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.SignatureHeader, signing.DefaultHeader)
	setDefault(&c.Timeout, 15*time.Second)
	setDefault(&c.Concurrency, 1024)
	setDefault(&c.PerWebhook, min(16, c.Concurrency, cmp.Or(c.PerAccount, c.Concurrency)))
	setDefault(&c.PerAccount, min(max(c.Concurrency/2, c.PerWebhook), c.Concurrency))
	setDefault(&c.MaxIdleConns, outbound.DefaultMaxIdle())
	setDefault(&c.RetryJitter, retryJitter)
	setDefault(&c.FailingLimit, 5*day)
	setDefault(&c.DrainTimeout, c.Timeout)
	setDefault(&c.MaxPerAccount, 100)
	setDefault(&c.Logger, slog.Default())
	if c.Retries == nil {
		c.Retries = DefaultRetries()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Retries = slices.Clone(c.Retries)
	c.AllowNetworks = slices.Clone(c.AllowNetworks)

	if err := c.alertDefaults(); err != nil {
		return c, err
	}
	var err error
	if c.Retention, err = c.Retention.withDefaults(c.Retries, c.RetryJitter); err != nil {
		return c, err
	}
	// Whether the header can be used is the signer's to say.
	if _, err := signing.NewSigner(c.SignatureHeader, signing.NewSecret()); err != nil {
		return c, fmt.Errorf("SignatureHeader: %w", err)
	}
	switch {
	case reserved(c.SignatureHeader):
		return c, invalid("SignatureHeader", "must not be a header with a meaning of its own")
	case c.Timeout < 0:
		return c, invalid("Timeout", "must be positive")
	case c.Concurrency < 1 || c.Concurrency > 100_000:
		return c, invalid("Concurrency", "must be from 1 to 100,000")
	case c.PerAccount < 1 || c.PerAccount > c.Concurrency:
		return c, invalid("PerAccount", fmt.Sprintf("must be from 1 to Concurrency, which is %d", c.Concurrency))
	case c.PerWebhook < 1 || c.PerWebhook > c.PerAccount:
		return c, invalid("PerWebhook", fmt.Sprintf("must be from 1 to PerAccount, which is %d", c.PerAccount))
	case c.MaxIdleConns > 1_000_000:
		return c, invalid("MaxIdleConns", "must be at most 1,000,000")
	case !(c.RetryJitter <= 1): // NaN, too
		return c, invalid("RetryJitter", "must be at most 1")
	case slices.ContainsFunc(c.Retries, func(d time.Duration) bool { return d < 0 }):
		return c, invalid("Retries", "must not be negative")
	case slices.ContainsFunc(c.AllowNetworks, func(p netip.Prefix) bool { return !p.IsValid() || p.Addr().Is4In6() }):
		return c, invalid("AllowNetworks", "must hold valid prefixes only, those of IPv4 as such")
	case slices.ContainsFunc(c.AllowHosts, func(host string) bool { return !outbound.IsHostName(host) }):
		return c, invalid("AllowHosts", "must hold host names only, such as hooks.internal; addresses are for AllowNetworks")
	}
	c.RetryJitter = max(c.RetryJitter, 0)
	return c, nil
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

// alertDefaults fills in the fields of alerts, or returns an error that names the
// first that makes no sense.
func (c *Config) alertDefaults() error {
	if c.ApproachingRatios == nil {
		c.ApproachingRatios = []float64{0.8}
	}
	if c.FileLeads == nil {
		c.FileLeads = []time.Duration{7 * day, day}
	}
	setDefault(&c.FileScanInterval, time.Hour)
	switch {
	case slices.ContainsFunc(c.ApproachingRatios, func(r float64) bool { return !(r >= 1e-6 && r < 1) || alerting.Level(r) >= alerting.Reached }): // NaN, too
		return invalid("ApproachingRatios", "must be more than 0 and less than 1")
	case len(c.ApproachingRatios) > 20:
		return invalid("ApproachingRatios", "must be at most 20")
	case len(c.FileLeads) == 0 || len(c.FileLeads) > 20:
		return invalid("FileLeads", "must be from 1 to 20")
	case slices.ContainsFunc(c.FileLeads, func(d time.Duration) bool { return d <= 0 || d > maxLead }):
		return invalid("FileLeads", fmt.Sprintf("must be positive, and at most %v", maxLead))
	case c.FileScanInterval < time.Second:
		return invalid("FileScanInterval", "must be at least a second")
	}
	return nil
}

// maxLead is ten years, which bounds for how long deduplication keys are kept.
const maxLead = 3652 * day

// alertPolicy returns the policy of a Config with its defaults.
func (c *Config) alertPolicy() alerting.Policy {
	return alerting.NewPolicy(uint64(c.DefaultBalanceThreshold), uint64(c.BalanceHysteresis), c.ApproachingRatios, c.FileLeads)
}
