package outbound

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// A Fault says which side caused a Post to end without a response.
type Fault uint8

const (
	Theirs Fault = iota // the receiver, or its name server
	Ours                // this host: out of a resource, or without a network
	Busy                // this client: too many lookups are waiting
)

// A suspicion is the likely cause of a failed Post, judged by its error alone.
type suspicion uint8

const (
	receiverFault  suspicion = iota
	likelyReceiver           // this host, if other receivers fail too and this process has reached a receiver before
	likelyHost               // the receiver, if other receivers answer
	clientBusy
	hostFault
)

// exhausted lists the errors of a host that has run out of a resource.
var exhausted = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// unreachable lists the errors of a host that has no free port, no network, or no route to the
// dialed address.
var unreachable = []error{syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.ENETDOWN}

// refused lists the errors of a connection that was refused. 10061 is WSAECONNREFUSED.
var refused = []error{syscall.ECONNREFUSED, syscall.Errno(10061)}

// isAny reports whether err is one of targets. It also compares the text, because the error of a
// lookup holds its cause only as text.
func isAny(err error, targets []error) bool {
	var dns *net.DNSError
	isLookup := errors.As(err, &dns)
	for _, e := range targets {
		if errors.Is(err, e) || isLookup && strings.Contains(dns.Err, e.Error()) {
			return true
		}
	}
	return false
}

func suspect(err error) suspicion {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errCrowded):
		return clientBusy
	case isAny(err, exhausted):
		return hostFault
	case isAny(err, unreachable):
		return likelyHost
	case errors.As(err, new(Failure)), !errors.As(err, &dns) || dns.IsNotFound:
		return receiverFault
	case dns.IsTimeout, strings.Contains(dns.Err, syscall.ECONNREFUSED.Error()):
		return likelyHost // refused: the host's own name server is down
	}
	return likelyReceiver // the host's name server answered
}

// blame returns the failure of a Post and the side that caused it.
func (c *Client) blame(cancel *Canceler, err error, by Caller, address string) (Failure, Fault) {
	failure := classify(err)
	if failure == errRefused {
		failure.Text += " by " + address
	}
	switch s := suspect(err); s {
	case clientBusy:
		return failure, Busy
	case hostFault:
		return failure, Ours
	case likelyReceiver, likelyHost:
		if c.isOffline(cancel, s, by, address) {
			return errOffline, Ours
		}
	}
	return failure, Theirs
}
