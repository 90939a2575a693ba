package webhooks

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"syscall"

	"github.com/storageapi/storageapi/internal/jitter"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

func init() {
	testhook.SetNetwork = func(service any, network testhook.Network) { setNetwork(service.(*WebhookService), network) }
	testhook.Seed = func(service any, seed uint64) {
		s := service.(*WebhookService)
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], seed)
		s.dispatcher.jitter = jitter.Seeded(seed)
		s.ids.Random, s.entries.ids.Random = rand.NewChaCha8(key), rand.NewChaCha8(key)
	}
}

func setNetwork(s *WebhookService, network testhook.Network) {
	config := outbound.Config{
		Dial: s.guard.Dial, RootCAs: s.dispatcher.config.Outbound.RootCAs,
		Plain: !network.TLS, MaxIdle: s.dispatcher.config.Outbound.MaxIdleConns,
	}
	var names *outbound.Lookups
	if network.Resolve != nil {
		names = outbound.NewLookups(network.Resolve)
	}
	if network.Dial != nil {
		config.Dial = func(ctx context.Context, by outbound.Caller, address string) (net.Conn, error) {
			if names != nil {
				name, _, err := net.SplitHostPort(address)
				if err == nil {
					_, err = names.Addresses(ctx, by, name)
				}
				if err != nil {
					return nil, err
				}
			}
			conn, err := network.Dial(ctx, "tcp", address)
			if _, isSocket := conn.(syscall.Conn); err != nil || isSocket {
				return conn, err
			}
			return inMemory{conn}, nil
		}
	}
	s.dispatcher.sender.client = outbound.New(config)
}

// An inMemory connection has no descriptor to poll. Its Poll method lets the client keep the
// connection for reuse, because receivers in memory send nothing unexpected.
type inMemory struct{ net.Conn }

// Poll implements [outbound.Poller].
func (inMemory) Poll([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
