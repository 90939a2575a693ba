package dashboard

import (
	"net/http"
	"strings"
)

// mux returns the route table.
func (p *pages) mux() *http.ServeMux {
	routes := []struct {
		method string // empty: any
		path   string // under the root
		handle func(*call) (answer, error)
	}{
		{"GET", "{$}", func(*call) (answer, error) { return goTo("api-keys", ""), nil }},

		{"GET", "api-keys", p.listKeys},
		{"GET", "api-keys/new", p.newKey},
		{"POST", "api-keys/new", p.createKey},
		{"GET", "api-keys/{id}", p.showKey},
		{"POST", "api-keys/{id}", p.renameKey},
		{"GET", "api-keys/{id}/rotate", p.askRotateKey},
		{"POST", "api-keys/{id}/rotate", p.rotateKey},
		{"GET", "api-keys/{id}/revoke", p.askRevokeKey},
		{"POST", "api-keys/{id}/revoke", p.revokeKey},

		{"GET", "webhooks", p.listWebhooks},
		{"GET", "webhooks/new", p.newWebhook},
		{"POST", "webhooks/new", p.createWebhook},
		{"GET", "webhooks/{id}", p.showWebhook},
		{"GET", "webhooks/{id}/edit", p.editWebhook},
		{"POST", "webhooks/{id}/edit", p.updateWebhook},
		{"POST", "webhooks/{id}/turn", p.turnWebhook},
		{"POST", "webhooks/{id}/test", p.testWebhook},
		{"GET", "webhooks/{id}/rotate", p.askRotateSecret},
		{"POST", "webhooks/{id}/rotate", p.rotateSecret},
		{"GET", "webhooks/{id}/delete", p.askDeleteWebhook},
		{"POST", "webhooks/{id}/delete", p.deleteWebhook},

		{"GET", "webhooks/{id}/deliveries", p.listDeliveries},
		{"GET", "webhooks/{id}/deliveries/{event}", p.showDelivery},
		{"POST", "webhooks/{id}/deliveries/{event}", p.redeliver},
		{"GET", "webhooks/{id}/recover", p.askRecover},
		{"POST", "webhooks/{id}/recover", p.startRecovery},
		{"GET", "webhooks/{id}/recoveries/{recovery}", p.showRecovery},

		{"", "{rest...}", func(*call) (answer, error) { return answer{}, errNoPage }},
	}
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.Handle(strings.TrimSpace(route.method+" "+p.path+route.path), p.serve(route.handle))
	}
	for name, asset := range assets {
		mux.Handle("GET "+p.path+"assets/"+name, asset)
	}
	return mux
}
