package storageapi

import (
	"errors"
	"net/http"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/signing"
)

// JWKS returns a handler that answers with the public keys of a webhook that signs with
// [signing.V1a], as a JSON Web Key Set. It needs no API key, since these keys are public. Mount it
// where receivers can reach it:
//
//	mux.Handle("GET /jwks/{account}/{webhook}", api.JWKS())
//
// The path values are the account and the webhook's ID; a host that does not want accounts in URLs
// can set them with [http.Request.SetPathValue]. While a secret is rotated, both keys are listed.
// Responses may be cached for five minutes, so receivers accept a replaced key for that long, and
// grace periods should be longer. The response is 404 for a webhook that does not exist, and also
// for one that does not sign with V1a.
func (h *Handler) JWKS() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		webhook, err := h.Webhooks.Get(r.Context(), r.PathValue("account"), r.PathValue("webhook"))
		keys := webhook.PublicKeys()
		switch {
		case err != nil && !errors.Is(err, apierr.ErrNotFound):
			if r.Context().Err() == nil { // otherwise the client disconnected
				h.http.Logger.ErrorContext(r.Context(), "storageapi: request failed", "route", "JWKS", "error", err)
			}
			auth.WriteFailure(w, err)
		case len(keys) == 0:
			auth.WriteError(w, http.StatusNotFound, auth.CodeNotFound, "There are no public keys at this path.")
		default:
			w.Header().Set("Content-Type", "application/jwk-set+json")
			w.Header().Set("Cache-Control", "public, max-age=300")
			_, _ = w.Write(signing.JWKS(keys...)) // an error means that the client is gone
		}
	})
}
