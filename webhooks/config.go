package webhooks

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// Config configures a [WebhookService]. The zero Config works. A host sets Events, and Outbound if
// receivers are in its own network; the other fields are for tuning.
type Config struct {
	// SignatureHeader is the request header that carries the signature of the body, see
	// docs/spec.md, section 6. Default: X-Service-Signature.
	SignatureHeader string

	// Events declares the event types that can be published and subscribed to, at most
	// [MaxEventTypes]. Webhooks stay subscribed to a type after its declaration is removed: their
	// pending deliveries are still made, and only callers with all scopes can change such a webhook.
	// Default: none; storageapi.NewHandler adds the types of package alerts.
	Events []EventDeclaration

	// MaxPerAccount is the maximum number of webhooks per account; negative: unlimited. Default: 100.
	// An API key that expires, lacks a scope or has another limit can create webhooks only
	// while the account is below half of the limit.
	MaxPerAccount int

	// Retry sets the retry schedule and when a webhook is disabled.
	Retry RetryPolicy

	// Concurrency limits concurrent attempts.
	Concurrency Concurrency

	// Outbound sets how to connect to receivers, and which addresses are allowed.
	Outbound Outbound

	// Retention sets how long events and attempts are kept.
	Retention Retention

	// Logger logs dead deliveries, disabled webhooks and store failures, and each attempt at debug
	// level. Default: slog.Default().
	Logger *slog.Logger

	// Observe receives every publication, claim, attempt, recorded result and webhook change, in
	// addition to storageapi.Config.Observe. Default: none.
	Observe observe.Observer

	// TraceContext returns the trace context of ctx, to be stored with the event that is published:
	// at most 64 visible ASCII characters, such as the W3C traceparent of the span; other values are
	// dropped. Each attempt reports it as [observe.Attempt.TraceContext], even days later and in
	// another process. It must be fast and safe for concurrent use. Set it if you trace requests;
	// package otelstorage has an implementation. Default: none.
	TraceContext func(ctx context.Context) string

	// Now is the clock for creation times, event timestamps and signatures. Due times use the
	// store's clock. Default: time.Now.
	Now func() time.Time
}

// RetryPolicy sets the retry schedule and when a webhook is disabled. See [Config.Retry].
type RetryPolicy struct {
	// Delays are the waits between consecutive attempts. If the attempt after the last wait fails,
	// the delivery is dead. A non-nil empty slice means one attempt only. Default: [DefaultRetries].
	Delays []time.Duration

	// Jitter is the maximum random deviation of each wait, as a fraction: 0.2 is ±20 %. At most 1;
	// negative: none. Default: 0.2.
	Jitter float64

	// DisableAfter is how long a webhook may fail continuously before it is disabled, even if no
	// attempt is made in that time. If attempts for only one event fail, the webhook is not
	// disabled. After half of this time, the host gets an audit entry as a warning, and when the
	// webhook is disabled, another one. The webhook is disabled no sooner than 12 hours after the
	// warning, or half of DisableAfter if that is less. Negative: never. Default: 5 days.
	DisableAfter time.Duration
}

// Concurrency limits the number of concurrent attempts. See [Config.Concurrency].
type Concurrency struct {
	// Total is the limit for all accounts together, at most 100,000. Default: 1,024.
	Total int

	// PerAccount is the limit for all webhooks of one account, at most Total. Default: half of
	// Total, or PerWebhook if that is more.
	PerAccount int

	// PerWebhook is the highest limit that one webhook can reach if its receiver keeps up; at most
	// PerAccount. Default: 16, or PerAccount or Total if that is less.
	PerWebhook int
}

// Outbound sets how to connect to receivers, and which addresses are allowed. See
// [Config.Outbound].
type Outbound struct {
	// AllowNetworks are networks to allow even though IANA's special-purpose registries list them,
	// such as loopback and private networks. By default all listed networks are refused. Use it for
	// tests and self-hosted services. Default: none.
	AllowNetworks []netip.Prefix

	// AllowHosts are host names that may resolve to any address, for receivers in the host's own
	// network. Each is an ASCII name without a wildcard; case is ignored. TLS is verified as usual.
	// For IP addresses use AllowNetworks. Default: none.
	AllowHosts []string

	// RootCAs are the certificate authorities that receivers' certificates must chain up to. Default:
	// the system's authorities.
	RootCAs *x509.CertPool

	// Transport makes the requests in place of the built-in client: through a proxy, to receivers
	// that speak only HTTP/2, or with tracing. It must be safe for concurrent use and return when
	// the request's context ends. Configure certificate authorities and idle connections on the
	// transport itself: RootCAs must be nil, and MaxIdleConns has no effect.
	//
	// Before each request, the receiver's name is resolved, and the request is refused if any of
	// its addresses is not allowed. The name may resolve to different addresses when the transport
	// looks it up. So a proxy must itself refuse private addresses, and a transport without a proxy
	// should dial with [Outbound.Dialer].
	//
	// While the proxy cannot be reached, or the transport returns errors that wrap [ErrProxy],
	// deliveries pause and no attempts are used up. With an [http.Transport],
	// OnProxyConnectResponse can return [ErrProxy] for responses that are the proxy's own fault.
	// Other errors count as failures of the receiver, unless all receivers fail.
	//
	// Default: the built-in client, which takes less processor time.
	Transport http.RoundTripper

	// Timeout limits one whole attempt: name lookup, connection, TLS, request and response header.
	// Default: 15 s.
	Timeout time.Duration

	// DrainTimeout is how long Run waits for running attempts once its context is done. Run then
	// cancels the remaining attempts and returns their deliveries to the store. Negative: no wait.
	// Default: Timeout.
	DrainTimeout time.Duration

	// MaxIdleConns is the maximum number of idle connections to all receivers. Each is closed after
	// 90 s. A delivery without an idle connection needs a TLS handshake, which takes more than ten
	// times as much processor time as the rest of the delivery. If events go in turn to twice as many
	// hosts as there are idle connections, more than half of all deliveries need a handshake.
	//
	// Each connection takes a descriptor and, with its TLS session, 13 to 20 KB of memory, and as
	// much again until the next garbage collection. TLS sessions, 5 KB each, are cached for twice as
	// many hosts. Idle connections are also closed while all connections together use more than three
	// quarters of the process's descriptor limit (RLIMIT_NOFILE).
	//
	// Raise it, and the descriptor limit, if events go to more hosts; lower it if memory or
	// descriptors are short. At most 1,000,000; negative: no idle connections. Default: 16,384, but
	// at most half of the descriptor limit, and at most 1 for each 240 KiB of GOMEMLIMIT. Run logs
	// the value, and Stats returns it.
	MaxIdleConns int

	// UserAgent is the User-Agent of the requests: visible ASCII characters, with spaces only between
	// them. Default: storageapi-webhooks/1.
	UserAgent string

	// SendTraceparent sends the event's trace context, if it is a W3C traceparent, to receivers in
	// the traceparent header, so that their traces join yours. The header reveals the IDs of your
	// traces, and is not signed. Default: not sent.
	SendTraceparent bool
}

// withDefaults returns a copy with the defaults filled in, or an error that names the first invalid
// field.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.SignatureHeader, signing.DefaultHeader)
	setDefault(&c.MaxPerAccount, 100)
	setDefault(&c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, check := range []func() error{c.Retry.check, c.Concurrency.check, c.Outbound.check} {
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
		return c, input.Invalid("SignatureHeader", "must not be a header with a standard meaning")
	}
	return c, nil
}

// check fills in the defaults, or returns an error that names the first invalid field.
func (r *RetryPolicy) check() error {
	if r.Delays == nil {
		r.Delays = DefaultRetries()
	}
	r.Delays = slices.Clone(r.Delays)
	setDefault(&r.Jitter, retryJitter)
	setDefault(&r.DisableAfter, 5*day)
	switch {
	case slices.ContainsFunc(r.Delays, func(d time.Duration) bool { return d < 0 }):
		return input.Invalid("Retry.Delays", "must not be negative")
	case !(r.Jitter <= 1): // rejects NaN, too
		return input.Invalid("Retry.Jitter", "must be at most 1")
	}
	r.Jitter = max(r.Jitter, 0)
	return nil
}

// check fills in the defaults, or returns an error that names the first invalid field.
func (c *Concurrency) check() error {
	setDefault(&c.Total, 1024)
	setDefault(&c.PerWebhook, min(16, c.Total, cmp.Or(c.PerAccount, c.Total)))
	setDefault(&c.PerAccount, min(max(c.Total/2, c.PerWebhook), c.Total))
	switch {
	case c.Total < 1 || c.Total > 100_000:
		return input.Invalid("Concurrency.Total", "must be from 1 to 100,000")
	case c.PerAccount < 1 || c.PerAccount > c.Total:
		return input.Invalid("Concurrency.PerAccount", fmt.Sprintf("must be from 1 to Concurrency.Total, which is %d", c.Total))
	case c.PerWebhook < 1 || c.PerWebhook > c.PerAccount:
		return input.Invalid("Concurrency.PerWebhook", fmt.Sprintf("must be from 1 to Concurrency.PerAccount, which is %d", c.PerAccount))
	}
	return nil
}

// check fills in the defaults, or returns an error that names the first invalid field.
func (o *Outbound) check() error {
	setDefault(&o.Timeout, 15*time.Second)
	setDefault(&o.DrainTimeout, o.Timeout)
	setDefault(&o.MaxIdleConns, outbound.DefaultMaxIdle())
	setDefault(&o.UserAgent, userAgent)
	o.AllowNetworks = slices.Clone(o.AllowNetworks)
	switch {
	case o.Timeout < 0:
		return input.Invalid("Outbound.Timeout", "must be positive")
	case !isHeaderValue(o.UserAgent) || len(o.UserAgent) > maxUserAgent:
		return input.Invalid("Outbound.UserAgent", fmt.Sprintf("must be at most %d visible ASCII characters, with spaces only between them", maxUserAgent))
	case o.MaxIdleConns > 1_000_000:
		return input.Invalid("Outbound.MaxIdleConns", "must be at most 1,000,000")
	case slices.ContainsFunc(o.AllowNetworks, func(p netip.Prefix) bool { return !p.IsValid() || p.Addr().Is4In6() }):
		return input.Invalid("Outbound.AllowNetworks", "must contain only valid prefixes, without IPv4-mapped IPv6 prefixes")
	case o.Transport != nil && o.RootCAs != nil:
		return input.Invalid("Outbound.RootCAs", "must be nil if Outbound.Transport is set: set the authorities in the transport")
	case slices.ContainsFunc(o.AllowHosts, func(host string) bool { return !outbound.IsHostName(host) }):
		return input.Invalid("Outbound.AllowHosts", "must contain only host names, such as hooks.internal; put addresses into Outbound.AllowNetworks")
	}
	return nil
}

// ErrProxy is the error that an [Outbound.Transport] returns or wraps if its proxy failed, not the
// receiver.
var ErrProxy = outbound.ErrProxy

// Dialer returns a function for [net/http.Transport.DialContext] that refuses the addresses that the
// built-in client refuses. It uses AllowNetworks and AllowHosts.
func (o Outbound) Dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	guard := outbound.NewGuard(o.AllowNetworks, o.AllowHosts)
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		return guard.Dial(ctx, outbound.CallerOf(ctx), address)
	}
}

// setDefault sets an unset field to value.
func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}
