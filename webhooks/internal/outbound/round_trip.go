package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// ErrProxy is the error of a RoundTripper whose proxy failed, not the receiver.
var ErrProxy = errors.New("the proxy failed")

var errProxy = Failure{KindInternal, "this server's proxy failed"}

// roundTrip makes a request through the host's RoundTripper.
func (c *Client) roundTrip(cancel *Canceler, r Request) (res Response) {
	by := Caller{r.Owner, r.Standing}
	ctx, release := cancel.until(r.Deadline)
	defer release()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	response, err := c.roundTripIn(ctx, by, r)
	if err != nil {
		failure, fault := c.blameTransport(cancel, err, by, r.Target.address)
		return failed(cancel, failure, fault)
	}
	defer func() { _ = response.Body.Close() }()
	c.reach.connected(by, r.Target.address)
	late := time.AfterFunc(bodyTimeout, stop)
	defer late.Stop()
	answer := head{header: response.Header, body: response.Body}
	res.Status, res.header = response.StatusCode, response.Header
	res.Body, _ = answer.read(r.Secrets())
	return res
}

func (c *Client) roundTripIn(ctx context.Context, by Caller, r Request) (*http.Response, error) {
	if err := c.config.Check(ctx, by, r.Target.address); err != nil {
		return nil, err
	}
	request, err := r.Target.request(context.WithValue(ctx, callerKey{}, by), r.Header, r.Body)
	if err != nil {
		return nil, errNoURL
	}
	response, err := c.config.Transport.RoundTrip(request)
	if err == nil && (response == nil || response.Body == nil) { // a RoundTripper must not do that
		return nil, errProtocol
	}
	if err == nil && !isStatus(response.StatusCode) { // HTTP/2 of net/http accepts any number
		_ = response.Body.Close()
		return nil, errProtocol
	}
	return response, err
}

// isStatus reports whether a number can be an HTTP status (RFC 9110, section 15).
func isStatus(code int) bool { return code >= 100 && code <= 999 }

type callerKey struct{}

// CallerOf returns the Caller from the context of a request that a RoundTripper received.
func CallerOf(ctx context.Context) Caller {
	by, _ := ctx.Value(callerKey{}).(Caller)
	return by
}

// request returns the request that compose encodes.
func (t *Target) request(ctx context.Context, header []Field, body []byte) (*http.Request, error) {
	request, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(t.head), bytes.NewReader([]byte("\r\n")))))
	if err != nil {
		return nil, err
	}
	for _, field := range header {
		request.Header[field.Name] = []string{field.Value}
	}
	request.URL.Scheme, request.URL.Host, request.RequestURI = "https", request.Host, ""
	request.ContentLength = int64(len(body))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	request.Body, _ = request.GetBody()
	return request.WithContext(ctx), nil
}

// blameTransport is like blame, for an error of Config.Check or Config.Transport. All requests may
// use the same proxy, so this host may have caused any failure, unless other receivers answer.
func (c *Client) blameTransport(cancel *Canceler, err error, by Caller, address string) (Failure, Fault) {
	if operation, ok := errors.AsType[*net.OpError](err); ok && operation.Op == "proxyconnect" || errors.Is(err, ErrProxy) {
		return errProxy, Ours
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		err = classifyHandshake(err)
	}
	failure, fault := c.blame(cancel, err, by, address)
	if !cancel.Canceled() && suspect(err) == receiverFault && !errors.As(err, new(Failure)) && c.isOffline(cancel, likelyReceiver, by, address) {
		return errOffline, Ours
	}
	return failure, fault
}
