package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
)

// A Kind is a kind of failure.
type Kind string

// The kinds of failure.
const (
	KindTimeout    Kind = "timeout"    // no response in time
	KindDNS        Kind = "dns"        // the host name has no public address, or could not be looked up
	KindBlocked    Kind = "blocked"    // the address is in a private or reserved network
	KindConnect    Kind = "connect"    // nothing answers at the address
	KindTLS        Kind = "tls"        // no trusted connection
	KindConnection Kind = "connection" // it broke before the response
	KindProtocol   Kind = "protocol"   // what came is not an HTTP response
	KindInternal   Kind = "internal"   // this host's own
)

// A Failure is why no response came, as the target's owner may see it: without what the
// error may hold of the URL or of what the receiver sent.
type Failure struct {
	Kind Kind
	Text string
}

func (f Failure) Error() string { return f.Text }

// What stands in the way of a response. The errors behind them could hold secrets.
var (
	errNoURL     = Failure{KindInternal, "no usable URL"}
	errCanceled  = Failure{KindInternal, "canceled"}
	errExhausted = Failure{KindInternal, "this server can open no more connections"}
	errOffline   = Failure{KindInternal, "this server cannot reach the network"}
	errTimeout   = Failure{KindTimeout, "timed out"}
	errLookup    = Failure{KindDNS, "looking up the host name failed"}
	errConnect   = Failure{KindConnect, "could not connect"}
	errBroke     = Failure{KindConnection, "the connection broke"}
	errProtocol  = Failure{KindProtocol, "no valid HTTP response"}

	errAuthority   = Failure{KindTLS, "TLS: the certificate is not signed by a known authority"}
	errHostname    = Failure{KindTLS, "TLS: the certificate is for another host"}
	errCertificate = Failure{KindTLS, "TLS: the certificate is not valid"}
	errHandshake   = Failure{KindTLS, "TLS: the handshake failed"}
)

// classify returns why no response came.
func classify(err error) Failure {
	var (
		known     Failure
		timeout   net.Error
		dns       *net.DNSError
		operation *net.OpError
	)
	switch {
	case errors.As(err, &known):
		return known
	case isAny(err, exhausted):
		return errExhausted
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout // also that of the name server
	case errors.As(err, &dns):
		return errLookup
	case errors.As(err, &operation) && operation.Op == "dial":
		return errConnect
	case broken(err):
		return errBroke
	case operation != nil, errors.As(err, new(tls.RecordHeaderError)):
		return errHandshake // an alert: TLS 1.3 tells the client last that it is refused
	}
	return errProtocol
}

// classifyHandshake returns err as a failure of TLS, unless it is one of the
// connection beneath.
func classifyHandshake(err error) error {
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return errAuthority
	case errors.As(err, new(x509.HostnameError)):
		return errHostname
	case errors.As(err, new(x509.CertificateInvalidError)):
		return errCertificate
	case strings.HasSuffix(err.Error(), "tls: no application protocol"): // an alert, whose type crypto/tls keeps to itself
		return errHTTP2
	case broken(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return errHandshake
}

// broken reports whether the connection itself failed, and not what came on it.
func broken(err error) bool {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return operation.Op == "read" || operation.Op == "write" // TLS has its own
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
