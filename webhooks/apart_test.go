package webhooks_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// receiversApart names the environment variable that makes the test binary run only receivers:
// see serveApart.
const receiversApart = "WEBHOOKS_TEST_RECEIVERS"

// sinks are receivers that accept everything. They run in a separate process, as real receivers
// do.
type sinks struct {
	Number    int
	Authority []byte // certificate authority that signs a certificate for each host; nil means no TLS
	Key       []byte // the authority's private key
}

// overTLS returns the sinks with TLS.
func (s sinks) overTLS() sinks {
	s.Authority, s.Key = trusted().certificate.Raw, must(x509.MarshalPKCS8PrivateKey(trusted().key))
	return s
}

// start starts the receivers in a separate process and returns their URLs.
func (s sinks) start(tb testing.TB) (urls []string) {
	tb.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), receiversApart+"=1")
	child.Stderr = os.Stderr
	in, out := must(child.StdinPipe()), must(child.StdoutPipe())
	if err := child.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = child.Wait()
	})
	if err := errors.Join(json.NewEncoder(in).Encode(s), json.NewDecoder(out).Decode(&urls)); err != nil {
		tb.Fatal(err)
	}
	return urls
}

// serveApart runs the receivers until its standard input is closed.
func serveApart() {
	var s sinks
	input := json.NewDecoder(os.Stdin)
	if err := input.Decode(&s); err != nil {
		panic(err)
	}
	var secure *tls.Config
	if s.Authority != nil {
		secure = &tls.Config{GetCertificate: (&authority{
			certificate: must(x509.ParseCertificate(s.Authority)),
			key:         must(x509.ParsePKCS8PrivateKey(s.Key)).(*ecdsa.PrivateKey),
		}).issueOnce()}
	}
	var urls []string
	for range s.Number {
		listener := must(net.Listen("tcp", "127.0.0.1:0"))
		urls = append(urls, (&receiver{address: listener.Addr().String()}).url("127.0.0.1"))
		if secure != nil {
			listener = tls.NewListener(listener, secure)
		}
		go func() { panic(http.Serve(listener, http.HandlerFunc(swallow))) }()
	}
	if err := json.NewEncoder(os.Stdout).Encode(urls); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// issueOnce returns a function that issues one certificate for each requested host.
func (a *authority) issueOnce() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var issued sync.Map // by host
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		host := cmp.Or(hello.ServerName, "127.0.0.1")
		certificate, ok := issued.Load(host)
		if !ok {
			own := a.issue(longAgo, farOff, host)
			certificate, _ = issued.LoadOrStore(host, &own)
		}
		return certificate.(*tls.Certificate), nil
	}
}

// hostURLs returns a URL for each of the given number of host names, spread over the receivers at
// urls.
func hostURLs(urls []string, hosts int) []string {
	all := make([]string, hosts)
	for i := range all {
		all[i] = strings.Replace(urls[i%len(urls)], "127.0.0.1", fmt.Sprint(i, ".hosts.example.com"), 1)
	}
	return all
}
