package webhooks

import (
	"context"
	"net"

	"github.com/storageapi/storageapi/internal/testhook"
)

// WaitingAccounts returns the number of accounts with calls to WaitEvents that wait.
func (s *WebhookService) WaitingAccounts() int {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	return len(s.waits.accounts)
}

// DialThrough makes the service reach its receivers through dial, without TLS, bypassing the guard.
// In a bubble of testing/synctest the receivers must be in memory. If dial is nil, the service
// dials as usual.
func (s *WebhookService) DialThrough(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	setNetwork(s, testhook.Network{Dial: dial})
}
