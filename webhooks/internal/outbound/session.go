package outbound

import "crypto/tls"

// maxSession is what of a receiver may be kept in a TLS session, in bytes as they are sent:
// its certificates, the chain that they were verified by, and its ticket. They take twice that
// in memory. Those of the public authorities have 4,000 to 10,000; a receiver could have
// 300,000.
const maxSession = 32 << 10

// A session is what a receiver needs to shake hands once more without its certificate and
// signature, as the [tls.ClientSessionCache] of one connection. It is found by the address:
// crypto/tls would offer it to all ports of a host.
type session struct {
	all     tls.ClientSessionCache // by address
	address string
	offered bool // this connection offered it
	refused bool // it is not offered any more
	large   bool // the receiver would take too much memory
}

func (s *session) Get(string) (*tls.ClientSessionState, bool) {
	if s.refused {
		return nil, false
	}
	state, ok := s.all.Get(s.address)
	s.offered = ok
	return state, ok
}

func (s *session) Put(_ string, state *tls.ClientSessionState) {
	if state != nil {
		ticket, of, err := state.ResumptionState()
		if err != nil {
			return
		}
		bytes, err := of.Bytes()
		if err != nil {
			return
		}
		if len(ticket)+len(bytes) > maxSession {
			s.large = true
			return
		}
	}
	s.all.Put(s.address, state)
}

// forget makes the next handshake one without a session.
func (s *session) forget() {
	s.offered, s.refused = false, true
	s.all.Put(s.address, nil)
}

// isLarge reports whether what a receiver has shown of itself is too much to be kept.
func isLarge(state tls.ConnectionState) bool {
	size := len(state.OCSPResponse)
	for _, certificate := range state.PeerCertificates {
		size += len(certificate.Raw)
	}
	for _, timestamp := range state.SignedCertificateTimestamps {
		size += len(timestamp)
	}
	return size > maxSession
}
