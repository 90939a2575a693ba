package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestClassify covers errors that a receiver in a test cannot cause.
func TestClassify(t *testing.T) {
	dialing := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, test := range []struct {
		err  error
		want Failure
	}{
		{dialing(syscall.EMFILE), errExhausted},
		{dialing(syscall.ENOBUFS), errExhausted},
		{&net.DNSError{Err: "dial udp 192.0.2.1:53: socket: too many open files"}, errExhausted}, // as package net reports it
		{dialing(syscall.ENFILE), errExhausted},
		{&net.DNSError{Err: "too many open files", UnwrapErr: syscall.EMFILE}, errExhausted},
		{dialing(syscall.ETIMEDOUT), errTimeout},
		{dialing(syscall.ECONNREFUSED), errRefused},
		{dialing(syscall.EHOSTUNREACH), errConnect},
		{dialing(syscall.ENETUNREACH), errConnect},
		{dialing(syscall.EADDRNOTAVAIL), errConnect},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}, errTimeout},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}}, errLookup},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, errTimeout},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, errBroke},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, errBroke},
		{fmt.Errorf("wrapped: %w", io.ErrUnexpectedEOF), errBroke},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, errHandshake},
		{&net.OpError{Op: "local error", Err: tls.AlertError(20)}, errHandshake},
		{tls.RecordHeaderError{Msg: "SENTINEL"}, errHandshake},
		{context.DeadlineExceeded, errTimeout},
		{fmt.Errorf("wrapped: %w", errBlocked), errBlocked},
		{errors.New("SENTINEL"), errProtocol},
	} {
		if got := classify(test.err); got != test.want {
			t.Errorf("classify(%v) = %v, want %v", test.err, got, test.want)
		}
	}
}
