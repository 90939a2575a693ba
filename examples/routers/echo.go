package routers

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// Echo mounts the API in an echo router. The wildcard route receives all requests that no other
// route matches by path and method.
func Echo(api *storageapi.Handler, settings http.Handler) http.Handler {
	router := echo.New()
	router.Any("/v2/*", echo.WrapHandler(api))
	router.Any("/settings/*", echo.WrapHandler(settings))

	router.GET("/v2/environments/:id", func(c echo.Context) error {
		caller, _ := auth.PrincipalFrom(c.Request().Context())
		writeEnvironment(c.Response(), caller, c.Param("id"))
		return nil
	}, echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return api.Auth.Require(scopes.EnvironmentsRead, next)
	}))
	return router
}
