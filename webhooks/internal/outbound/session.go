package outbound

import (
	"crypto/tls"
	"math/rand/v2"
	"sync"
)

// maxSession is the maximum encoded size, in bytes, of a TLS session to keep: the receiver's
// certificates, the verified chain, and the ticket. In memory the session takes twice as much.
// Sessions with certificates of public authorities have 4,000 to 10,000 bytes; a receiver could
// send 300,000.
const maxSession = 32 << 10

// sessions keeps the TLS sessions of up to max receivers, by address. When it is full, one in
// admitOneIn new sessions replaces an arbitrary old session, as in a pool.
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

// put keeps a session. A nil state deletes the session of the address.
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

// A session is the [tls.ClientSessionCache] of one connection. It lets a receiver resume TLS
// without sending a certificate and a signature. Its key is the address with the port, because
// crypto/tls would share sessions among all ports of a host.
type session struct {
	all     *sessions
	address string
	offered bool // this connection offered a session
	refused bool // do not offer a session again
	large   bool // the receiver's certificates take too much memory
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
		ticket, resumed, err := state.ResumptionState()
		if err != nil {
			return
		}
		bytes, err := resumed.Bytes()
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

// forget deletes the session, so that the next handshake does not offer it.
func (s *session) forget() {
	s.offered, s.refused = false, true
	s.all.put(s.address, nil)
}

// isLarge reports whether a receiver's certificates and stapled responses take too much memory to
// keep the connection.
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
