package webhooks_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
)

// receiversApart names the variable that makes the test binary nothing but receivers:
// see serveApart.
const receiversApart = "WEBHOOKS_TEST_RECEIVERS"

// sinks are receivers that take everything, in a process of their own, as they are in
// life.
type sinks struct {
	Number      int
	Certificate []byte // nil: without TLS
	Key         []byte
}

// start starts the process and returns the URLs.
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

// serveApart is the process. It ends when its input does.
func serveApart() {
	var s sinks
	input := json.NewDecoder(os.Stdin)
	if err := input.Decode(&s); err != nil {
		panic(err)
	}
	var urls []string
	for range s.Number {
		listener := must(net.Listen("tcp", "127.0.0.1:0"))
		urls = append(urls, (&receiver{address: listener.Addr().String()}).url("127.0.0.1"))
		if s.Certificate != nil {
			certificate := tls.Certificate{Certificate: [][]byte{s.Certificate}, PrivateKey: must(x509.ParsePKCS8PrivateKey(s.Key))}
			listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}})
		}
		go func() { panic(http.Serve(listener, http.HandlerFunc(swallow))) }()
	}
	if err := json.NewEncoder(os.Stdout).Encode(urls); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
