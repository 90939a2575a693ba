package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/internal/arrival"
)

const maxBody = 64 << 10

// A bodyRule says which kind of request body a route accepts.
type bodyRule int

const (
	noBody       bodyRule = iota // the body is not read
	emptyBody                    // no body, or an empty object
	optionalBody                 // JSON, or no body, which means an empty object
	neededBody                   // JSON
)

// receive reads the request's body as the route's rule requires, and checks its media type and
// size.
func (c *call) receive() error {
	rule := c.route.body
	if rule == noBody {
		return nil
	}
	c.data = []byte("{}")
	if c.ContentLength == 0 && rule != neededBody {
		return nil
	}
	body := http.MaxBytesReader(c.writer, c.Body, maxBody)
	if !isJSON(c.Header) {
		// A body of unknown length may turn out to be empty.
		if rule != neededBody && c.ContentLength < 0 && isEmpty(body) {
			arrival.Lift(c.writer, c.Request)
			return nil
		}
		return errMediaType
	}
	if c.ContentLength > maxBody {
		return errTooLarge
	}
	data, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return errTooLarge
	case err != nil: // the client disconnected, broke the framing or took too long
		return invalid("body", "must arrive in full within 30 seconds")
	}
	arrival.Lift(c.writer, c.Request)
	if len(data) > 0 || rule == neededBody {
		c.data = data
	}
	if rule == emptyBody {
		return decodeObject(c.data)
	}
	return nil
}

// isEmpty reports whether a body ends before its first byte.
func isEmpty(body io.Reader) bool {
	_, err := io.ReadFull(body, make([]byte, 1))
	return err == io.EOF
}

// isJSON reports whether the header declares JSON in UTF-8 without a content coding.
func isJSON(header http.Header) bool {
	types := header["Content-Type"]
	if len(types) != 1 || len(header["Content-Encoding"]) > 0 {
		return false
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	charset, ok := params["charset"]
	return err == nil && mediaType == "application/json" && (!ok || strings.EqualFold(charset, "utf-8"))
}
