package outbound

import (
	"crypto/tls"
	"math/rand/v2"
	"sync"
)

// maxSession is what of a receiver may be kept in a TLS session, in bytes as they are sent:
// its certificates, the chain that they were verified by, and its ticket. They take twice that
// in memory. Those of the public authorities have 4,000 to 10,000; a receiver could have
// 300,000.
const maxSession = 32 << 10

// sessions keeps the TLS sessions of max receivers, by address. Where there are more, one
// in admitOneIn of the new ones is kept in place of any other, as in a pool.
type sessions struct {
	max  int
	mu   sync.Mutex
	kept map[string]*tls.ClientSessionState
}

func (s *sessions) get(address string) (*tls.ClientSessionState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.kept[address]
	return state, ok
}

// put keeps a session; nil: none.
func (s *sessions) put(address string, state *tls.ClientSessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == nil {
		delete(s.kept, address)
		return
	}
	if _, ok := s.kept[address]; !ok && len(s.kept) >= s.max {
		if rand.IntN(admitOneIn) != 0 {
			return
		}
		for other := range s.kept {
			delete(s.kept, other)
			break
		}
	}
	if s.kept == nil {
		s.kept = make(map[string]*tls.ClientSessionState)
	}
	s.kept[address] = state
}

// A session is what a receiver needs to shake hands once more without its certificate and
// signature, as the [tls.ClientSessionCache] of one connection. It is found by the address:
// crypto/tls would offer it to all ports of a host.
type session struct {
	all     *sessions
	address string
	offered bool // this connection offered it
	refused bool // it is not offered any more
	large   bool // the receiver would take too much memory
}

func (s *session) Get(string) (*tls.ClientSessionState, bool) {
	if s.refused {
		return nil, false
	}
	state, ok := s.all.get(s.address)
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
	s.all.put(s.address, state)
}

// forget makes the next handshake one without a session.
func (s *session) forget() {
	s.offered, s.refused = false, true
	s.all.put(s.address, nil)
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
