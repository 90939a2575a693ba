package routers

import (
	"net/http"

	"github.com/jub0bs/cors"

	"github.com/storageapi/storageapi"
)

// CORS lets pages of the given origins call all routes of root: the API and the host's own routes.
// It wraps the whole router and answers preflight requests itself, because they have no API key and
// the guard would refuse them.
//
// Every visitor of such a page can read the API key in it, so give the key few scopes and a short
// life.
func CORS(root http.Handler, origins ...string) (http.Handler, error) {
	middleware, err := cors.NewMiddleware(cors.Config{
		Origins:         origins,
		Methods:         []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete},
		RequestHeaders:  storageapi.RequestHeaders(), // add the headers of the host's own routes
		ResponseHeaders: storageapi.ResponseHeaders(),
		MaxAgeInSeconds: 600,
	})
	if err != nil {
		return nil, err
	}
	return middleware.Wrap(root), nil
}
