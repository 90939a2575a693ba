package outbound

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// A Fault says where the cause is of a Post that got no response.
type Fault uint8

const (
	Theirs Fault = iota // the receiver, or its name server
	Ours                // this host has run out of something, or cannot reach the network
	Busy                // too much is under way in this client
)

// A suspicion is what an error by itself says of its cause.
type suspicion uint8

const (
	theirs       suspicion = iota
	likelyTheirs           // unless others fail too; if none was ever reached it is
	likelyOurs             // unless others answer
	busy
	ours
)

// exhausted are the errors of a host that has run out of something.
var exhausted = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// unreachable are the errors of a host without ports or a network, and of one that has
// no route to the one address that was dialed.
var unreachable = []error{syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.ENETDOWN}

// isAny reports whether an error is one of those. That of a lookup says so in words only.
func isAny(err error, of []error) bool {
	var dns *net.DNSError
	isLookup := errors.As(err, &dns)
	for _, e := range of {
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
		return busy
	case isAny(err, exhausted):
		return ours
	case isAny(err, unreachable):
		return likelyOurs
	case errors.As(err, new(Failure)), !errors.As(err, &dns) || dns.IsNotFound:
		return theirs
	case dns.IsTimeout, strings.Contains(dns.Err, syscall.ECONNREFUSED.Error()):
		return likelyOurs // also a name server of the host's own that is not there
	}
	return likelyTheirs // the host's name server answered
}

// blame returns the failure of a Post to an address, and where its cause is.
func (c *Client) blame(cancel *Canceler, err error, by caller, address string) (Failure, Fault) {
	failure := classify(err)
	switch s := suspect(err); s {
	case busy:
		return failure, Busy
	case ours:
		return failure, Ours
	case likelyTheirs, likelyOurs:
		if c.isOffline(cancel, s, by, address) {
			return errOffline, Ours
		}
	}
	return failure, Theirs
}
