package routers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// Chi mounts the API in a chi router. It sets MethodNotAllowed, because chi itself answers without
// a body if a host's path does not support a method.
func Chi(api *storageapi.Handler, settings http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Handle("/v2/*", api)
	router.Handle("/settings/*", settings)
	router.MethodNotAllowed(api.ServeHTTP)

	// Middleware takes and returns handlers, as the guard does.
	router.With(func(next http.Handler) http.Handler {
		return api.Auth.Require(scopes.EnvironmentsRead, next)
	}).Get("/v2/environments/{id}", func(w http.ResponseWriter, r *http.Request) {
		caller, _ := auth.PrincipalFrom(r.Context())
		writeEnvironment(w, caller, chi.URLParam(r, "id"))
	})
	return router
}
