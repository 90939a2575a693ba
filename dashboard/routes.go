package dashboard

import (
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
		{"GET", "api-keys/{id}", auth.ReadKeys, p.showKey},
		{"POST", "api-keys/{id}", auth.UpdateKey, p.renameKey},
		{"GET", "api-keys/{id}/edit", auth.UpdateKey, p.editKey},
		{"POST", "api-keys/{id}/edit", auth.UpdateKey, p.updateKey},
		{"GET", "api-keys/{id}/turn", auth.UpdateKey, p.askPauseKey},
		{"POST", "api-keys/{id}/turn", auth.UpdateKey, p.turnKey},
		{"GET", "api-keys/{id}/rotate", auth.RotateKey, p.askRotateKey},
		{"POST", "api-keys/{id}/rotate", auth.RotateKey, p.rotateKey},
		{"GET", "api-keys/{id}/revoke", auth.DeleteKey, p.askRevokeKey},
		{"POST", "api-keys/{id}/revoke", auth.DeleteKey, p.revokeKey},

		{"GET", "webhooks", auth.ReadWebhooks, p.listWebhooks},
		{"GET", "webhooks/new", auth.CreateWebhook, p.newWebhook},
		{"POST", "webhooks/new", auth.CreateWebhook, p.createWebhook},
		{"GET", "webhooks/{id}", auth.ReadWebhooks, p.showWebhook},
		{"GET", "webhooks/{id}/edit", auth.UpdateWebhook, p.editWebhook},
		{"POST", "webhooks/{id}/edit", auth.UpdateWebhook, p.updateWebhook},
		{"GET", "webhooks/{id}/turn", auth.UpdateWebhook, p.askTurnOffWebhook},
		{"POST", "webhooks/{id}/turn", auth.UpdateWebhook, p.turnWebhook},
		{"GET", "webhooks/{id}/pause", auth.UpdateWebhook, p.askPauseWebhook},
		{"POST", "webhooks/{id}/pause", auth.UpdateWebhook, p.pauseWebhook},
		{"POST", "webhooks/{id}/release", auth.UpdateWebhook, p.releaseWebhook},
		{"POST", "webhooks/{id}/test", auth.UpdateWebhook, p.testWebhook},
		{"GET", "webhooks/{id}/rotate", auth.UpdateWebhook, p.askRotateSecret},
		{"POST", "webhooks/{id}/rotate", auth.UpdateWebhook, p.rotateSecret},
		{"GET", "webhooks/{id}/delete", auth.DeleteWebhook, p.askDeleteWebhook},
		{"POST", "webhooks/{id}/delete", auth.DeleteWebhook, p.deleteWebhook},

		{"GET", "webhooks/{id}/deliveries", auth.ReadWebhooks, p.listDeliveries},
		{"POST", "webhooks/{id}/deliveries", auth.UpdateWebhook, p.resendDeliveries},
		{"GET", "webhooks/{id}/deliveries/{event}", auth.ReadWebhooks, p.showDelivery},
		{"POST", "webhooks/{id}/deliveries/{event}", auth.UpdateWebhook, p.redeliver},
		{"GET", "webhooks/{id}/recover", auth.UpdateWebhook, p.askRecover},
		{"POST", "webhooks/{id}/recover", auth.UpdateWebhook, p.startRecovery},
		{"GET", "webhooks/{id}/recoveries/{recovery}", auth.ReadWebhooks, p.showRecovery},

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

// showFirst redirects to the first page that the user is allowed to see.
func (p *pages) showFirst(c *call) (response, error) {
	if p.permit(c.Request, auth.ReadKeys) != nil {
		return goTo("webhooks", ""), nil
	}
	return goTo("api-keys", ""), nil
}
