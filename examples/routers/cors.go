package routers

import (
	"net/http"

	"github.com/jub0bs/cors"

	"github.com/storageapi/storageapi"
)

// CORS lets programs in browsers, on pages of the origins, call everything that root serves:
// the API and the host's own routes. It goes around the whole router, so that a preflight
// request, which carries no API key, meets neither a route nor the guard.
//
// Everyone who can open such a page can read its API key: give that few scopes and a short life.
func CORS(root http.Handler, origins ...string) (http.Handler, error) {
	middleware, err := cors.NewMiddleware(cors.Config{
		Origins:         origins,
		Methods:         []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete},
		RequestHeaders:  storageapi.RequestHeaders(), // and those of the host's own routes
		ResponseHeaders: storageapi.ResponseHeaders(),
		MaxAgeInSeconds: 600,
	})
	if err != nil {
		return nil, err
	}
	return middleware.Wrap(root), nil
}
