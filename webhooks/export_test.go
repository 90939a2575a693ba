package webhooks

import (
	"context"
	"net"
)

// DialThrough makes the service reach its receivers through dial, bypassing the guard. In a
// bubble of testing/synctest the receivers must be in memory.
func (s *WebhookService) DialThrough(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.dispatcher.sender.client.DialThrough(dial)
}

// SpeakPlain makes the service speak HTTP without TLS.
func (s *WebhookService) SpeakPlain() {
	s.dispatcher.sender.client.SpeakPlain()
}
