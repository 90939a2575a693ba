package signing

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Handler returns a handler that passes on to next what [Verifier.Verify] accepts: a copy of the request whose Body
// yields the verified bytes and whose ContentLength counts them. The rest it answers itself, in plain text:
//
//   - 401 when the request is not signed as it should be, for any reason; before reading the body, if the
//     headers alone settle that;
//   - 413 when the body is longer than MaxBody;
//   - 400 when the body cannot be read to its end.
//
// The body is held in memory. How long it may take to arrive is for the server's ReadTimeout to say.
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
