package routers

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// Gin mounts the API in a gin router. A wildcard route under /v2 would conflict with the host's
// routes and make gin panic, so NoRoute passes all unmatched requests to the API. Gin must pass on
// their paths without cleaning them.
func Gin(api *storageapi.Handler, settings http.Handler) http.Handler {
	router := gin.New()
	router.RedirectTrailingSlash = false
	router.Any("/settings/*path", gin.WrapH(settings))
	router.NoRoute(gin.WrapH(api))

	router.GET("/v2/environments/:id", ginRequire(api, scopes.EnvironmentsRead), func(c *gin.Context) {
		caller, _ := auth.PrincipalFrom(c.Request.Context())
		writeEnvironment(c.Writer, caller, c.Param("id"))
	})
	return router
}

// ginRequire adapts Require to gin middleware: later handlers run only if the guard passes.
func ginRequire(api *storageapi.Handler, scope scopes.Scope) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		api.Auth.Require(scope, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r // with the principal
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}
