package signing

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Handler returns a handler that passes each request accepted by [Verifier.Verify] to next, as a
// copy whose Body is the verified bytes and whose ContentLength is their number. The handler
// answers all other requests itself, in plain text:
//
//   - 401 if a signature is missing or invalid, without reading the body if the headers
//     alone are invalid;
//   - 413 if the body is longer than MaxBody;
//   - 400 if the body cannot be read to its end.
//
// The body is held in memory. The server's ReadTimeout limits how long its arrival may take.
func (v *Verifier) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := v.open(r.Header)
		if err != nil {
			http.Error(w, "invalid signature", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, v.maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, "body too large", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "unreadable body", http.StatusBadRequest)
			return
		}
		if v.check(e, body) != nil {
			http.Error(w, "invalid signature", http.StatusUnauthorized)
			return
		}
		verified := r.WithContext(r.Context()) // a shallow copy
		verified.Body = io.NopCloser(bytes.NewReader(body))
		verified.ContentLength = int64(len(body))
		verified.TransferEncoding = nil
		next.ServeHTTP(w, verified)
	})
}
