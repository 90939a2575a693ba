package webhooks

import (
	"context"
	"net/netip"

	"github.com/storageapi/storageapi/internal/testhook"
)

func init() {
	testhook.DialThrough = func(service any, dial testhook.Dial, plain bool) {
		client := service.(*WebhookService).dispatcher.sender.client
		if client.DialThrough(dial); plain {
			client.SpeakPlain()
		}
	}
	testhook.LookUpThrough = func(service any, resolve func(context.Context, string) ([]netip.Addr, error)) {
		service.(*WebhookService).dispatcher.sender.client.LookUpThrough(resolve)
	}
	testhook.Seed = func(service any, seed uint64) {
		s := service.(*WebhookService)
		s.dispatcher.jitter.Seed(seed)
		s.ids.Seed(seed)
		s.entries.ids.Seed(seed)
	}
}
