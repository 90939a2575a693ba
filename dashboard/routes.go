package dashboard

import (
	"context"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/auth"
)

// anyone is the action of routes that every user may use.
const anyone auth.Action = ""

// mux returns a ServeMux with all routes.
func (p *pages) mux() *http.ServeMux {
	routes := []struct {
		method string      // empty means any method
		path   string      // below the root
		action auth.Action // the action that the user must be allowed to perform, see Config.May
		handle func(*call) (response, error)
	}{
		{"GET", "{$}", anyone, p.showFirst},

		{"GET", "api-keys", auth.ReadKeys, p.listKeys},
		{"POST", "api-keys", auth.ReadKeys, p.filterKeys},
		{"GET", "api-keys/new", auth.CreateKey, p.newKey},
		{"POST", "api-keys/new", auth.CreateKey, p.createKey},
		{"GET", "api-keys/{id}", auth.ReadKeys, of(p.keys.Get, p.showKey)},
		{"POST", "api-keys/{id}", auth.UpdateKey, of(p.keys.Get, p.renameKey)},
		{"GET", "api-keys/{id}/edit", auth.UpdateKey, of(p.keys.Get, p.editKey)},
		{"POST", "api-keys/{id}/edit", auth.UpdateKey, of(p.keys.Get, p.updateKey)},
		{"GET", "api-keys/{id}/turn", auth.UpdateKey, of(p.keys.Get, p.askPauseKey)},
		{"POST", "api-keys/{id}/turn", auth.UpdateKey, p.turnKey},
		{"GET", "api-keys/{id}/rotate", auth.RotateKey, of(p.keys.Get, p.askRotateKey)},
		{"POST", "api-keys/{id}/rotate", auth.RotateKey, of(p.keys.Get, p.rotateKey)},
		{"GET", "api-keys/{id}/revoke", auth.DeleteKey, of(p.keys.Get, p.askRevokeKey)},
		{"POST", "api-keys/{id}/revoke", auth.DeleteKey, p.revokeKey},

		{"GET", "webhooks", auth.ReadWebhooks, p.listWebhooks},
		{"GET", "webhooks/new", auth.CreateWebhook, p.newWebhook},
		{"POST", "webhooks/new", auth.CreateWebhook, p.createWebhook},
		{"GET", "webhooks/{id}", auth.ReadWebhooks, p.showWebhook},
		{"GET", "webhooks/{id}/edit", auth.UpdateWebhook, of(p.webhooks.Get, p.editWebhook)},
		{"POST", "webhooks/{id}/edit", auth.UpdateWebhook, of(p.webhooks.Get, p.updateWebhook)},
		{"GET", "webhooks/{id}/turn", auth.UpdateWebhook, of(p.webhooks.Get, p.askTurnOffWebhook)},
		{"POST", "webhooks/{id}/turn", auth.UpdateWebhook, p.turnWebhook},
		{"GET", "webhooks/{id}/pause", auth.UpdateWebhook, of(p.webhooks.Get, p.askPauseWebhook)},
		{"POST", "webhooks/{id}/pause", auth.UpdateWebhook, of(p.webhooks.Get, p.pauseWebhook)},
		{"POST", "webhooks/{id}/release", auth.UpdateWebhook, p.releaseWebhook},
		{"POST", "webhooks/{id}/test", auth.UpdateWebhook, p.testWebhook},
		{"GET", "webhooks/{id}/rotate", auth.UpdateWebhook, of(p.webhooks.Get, p.askRotateSecret)},
		{"POST", "webhooks/{id}/rotate", auth.UpdateWebhook, of(p.webhooks.Get, p.rotateSecret)},
		{"GET", "webhooks/{id}/delete", auth.DeleteWebhook, of(p.webhooks.Get, p.askDeleteWebhook)},
		{"POST", "webhooks/{id}/delete", auth.DeleteWebhook, p.deleteWebhook},

		{"GET", "webhooks/{id}/deliveries", auth.ReadWebhooks, p.listDeliveries},
		{"POST", "webhooks/{id}/deliveries", auth.UpdateWebhook, of(p.webhooks.Get, p.resendDeliveries)},
		{"GET", "webhooks/{id}/deliveries/{event}", auth.ReadWebhooks, p.showDelivery},
		{"POST", "webhooks/{id}/deliveries/{event}", auth.UpdateWebhook, p.redeliver},
		{"GET", "webhooks/{id}/recover", auth.UpdateWebhook, of(p.webhooks.Get, p.askRecover)},
		{"POST", "webhooks/{id}/recover", auth.UpdateWebhook, of(p.webhooks.Get, p.startRecovery)},
		{"GET", "webhooks/{id}/recoveries/{recovery}", auth.ReadWebhooks, of(p.webhooks.Get, p.showRecovery)},

		{"GET", "events", auth.ReadEvents, p.listEvents},
		{"GET", "events/{event}", auth.ReadEvents, p.showEvent},

		{"GET", "audit-log", auth.ReadAudit, p.showAuditLog},
		{"POST", "audit-log", auth.ReadAudit, p.filterAuditLog},
		{"GET", "search", anyone, p.showSearch},
		{"POST", "search", anyone, p.search},

		{"", "{rest...}", anyone, func(*call) (response, error) { return response{}, errNoPage }},
	}
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.Handle(strings.TrimSpace(route.method+" "+p.path+route.path), p.serve(route.action, route.handle))
	}
	for name, asset := range assets {
		mux.Handle("GET "+p.path+"assets/"+name, asset)
	}
	return mux
}

// of returns the handler of a page about the key or webhook in the path.
func of[T any](get func(ctx context.Context, account, id string) (T, error), handle func(*call, *T) (response, error)) func(*call) (response, error) {
	return func(c *call) (response, error) {
		one, err := get(c.Context(), c.account, c.PathValue("id"))
		if err != nil {
			return response{}, err
		}
		return handle(c, &one)
	}
}

// showFirst redirects to the first page that the user is allowed to see.
func (p *pages) showFirst(c *call) (response, error) {
	if p.permit(c.Request, auth.ReadKeys) != nil {
		return goTo("webhooks", ""), nil
	}
	return goTo("api-keys", ""), nil
}
