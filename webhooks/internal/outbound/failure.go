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
	KindConnect    Kind = "connect"    // no server accepts connections at the address
	KindTLS        Kind = "tls"        // the TLS handshake failed or the certificate is not trusted
	KindConnection Kind = "connection" // the connection broke before the response
	KindProtocol   Kind = "protocol"   // the received bytes are not an HTTP response
	KindInternal   Kind = "internal"   // this host failed
)

// A Failure is the reason why a Post received no response. Its text contains no received bytes and
// at most the host and port of the URL, so the target's owner may see it.
type Failure struct {
	Kind Kind
	Text string
}

func (f Failure) Error() string { return f.Text }

// Failures that replace the underlying errors, which could contain secrets.
var (
	errNoURL     = Failure{KindInternal, "no usable URL"}
	errCanceled  = Failure{KindInternal, "canceled"}
	errExhausted = Failure{KindInternal, "this server can open no more connections"}
	errOffline   = Failure{KindInternal, "this server cannot reach the network"}
	errTimeout   = Failure{KindTimeout, "timed out"}
	errLookup    = Failure{KindDNS, "looking up the host name failed"}
	errConnect   = Failure{KindConnect, "could not connect"}
	errRefused   = Failure{KindConnect, "connection refused"} // blame adds the host and port
	errBroke     = Failure{KindConnection, "the connection broke"}
	errProtocol  = Failure{KindProtocol, "no valid HTTP response"}

	errAuthority   = Failure{KindTLS, "TLS: the certificate is not signed by a known authority"}
	errHostname    = Failure{KindTLS, "TLS: the certificate is for another host"}
	errCertificate = Failure{KindTLS, "TLS: the certificate is not valid"}
	errHandshake   = Failure{KindTLS, "TLS: the handshake failed"}
)

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
		return errTimeout // including a DNS timeout
	case errors.As(err, &dns):
		return errLookup
	case isAny(err, refused):
		return errRefused
	case errors.As(err, &operation) && operation.Op == "dial":
		return errConnect
	case broken(err):
		return errBroke
	case operation != nil, errors.As(err, new(tls.RecordHeaderError)):
		return errHandshake // an alert: a TLS 1.3 server may refuse the handshake after the client's last message
	}
	return errProtocol
}

// classifyHandshake returns a TLS failure for err. If the connection below TLS failed, it returns
// err itself.
func classifyHandshake(err error) error {
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return errAuthority
	case errors.As(err, new(x509.HostnameError)):
		return errHostname
	case errors.As(err, new(x509.CertificateInvalidError)):
		return errCertificate
	case strings.HasSuffix(err.Error(), "tls: no application protocol"): // crypto/tls does not export the alert's type
		return errHTTP2
	case broken(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return errHandshake
}

// broken reports whether the connection itself failed, rather than TLS or HTTP on it.
func broken(err error) bool {
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return operation.Op == "read" || operation.Op == "write" // crypto/tls uses other names
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
