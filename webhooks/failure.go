package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// A failure is why an attempt failed, as its account may see it: without what the
// error may hold of the URL or of what the receiver sent.
type failure struct {
	class ErrorClass
	text  string
}

func (f failure) Error() string { return f.text }

// What stands in the way of a response. The errors behind them could hold secrets.
var (
	errNoSecret  = failure{ClassInternal, "no usable signing secret"}
	errNoURL     = failure{ClassInternal, "no usable URL"}
	errPanic     = failure{ClassInternal, "panic"}
	errCanceled  = failure{ClassInternal, "canceled"}
	errExhausted = failure{ClassInternal, "this server can open no more connections"}
	errOffline   = failure{ClassInternal, "this server cannot reach the network"}
	errTimeout   = failure{ClassTimeout, "timed out"}
	errLookup    = failure{ClassDNS, "looking up the host name failed"}
	errConnect   = failure{ClassConnect, "could not connect"}
	errBroke     = failure{ClassConnection, "the connection broke"}
	errProtocol  = failure{ClassProtocol, "no valid HTTP response"}

	errAuthority   = failure{ClassTLS, "TLS: the certificate is not signed by a known authority"}
	errHostname    = failure{ClassTLS, "TLS: the certificate is for another host"}
	errCertificate = failure{ClassTLS, "TLS: the certificate is not valid"}
	errHandshake   = failure{ClassTLS, "TLS: the handshake failed"}
)

// judge returns why a response is a failure, or the zero failure for success.
func judge(status int) failure {
	switch {
	case status >= 200 && status <= 299:
		return failure{}
	case status >= 300 && status <= 399:
		return failure{ClassRedirect, fmt.Sprintf("status %d: redirects are not followed", status)}
	}
	return failure{ClassStatus, fmt.Sprintf("status %d", status)}
}

// classify returns why no response came.
func classify(err error) failure {
	var (
		known     failure
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

// broken reports whether the connection itself failed, and not what was said on it.
func broken(err error) bool {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return operation.Op == "read" || operation.Op == "write" // TLS has its own
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
