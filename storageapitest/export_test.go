package storageapitest

import (
	"context"
	"net"
)

// Dial connects to one of the kit's receivers through the kit's network.
func (k *Kit) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return k.network.dial(ctx, network, address)
}
