package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/internal/invalid"
)

const maxBody = 64 << 10

// body returns the request's body: JSON by its header, and not too large.
func (c *call) body() ([]byte, error) {
	if !isJSON(c.Header) {
		return nil, errMediaType
	}
	if c.ContentLength > maxBody {
		return nil, errTooLarge
	}
	data, err := io.ReadAll(http.MaxBytesReader(c.writer, c.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errTooLarge
	case err != nil: // the client's doing: it went away or broke the framing
		return nil, invalid.Field("body", "must arrive whole")
	}
	return data, nil
}

// optionalBody is body for a request that may have none, which is as good as an
// empty object.
func (c *call) optionalBody() ([]byte, error) {
	if c.ContentLength == 0 {
		return []byte("{}"), nil
	}
	data, err := c.body()
	if err == nil && len(data) == 0 { // of unknown length, in the beginning
		data = []byte("{}")
	}
	return data, err
}

// isJSON reports whether the header announces JSON in UTF-8 without a content
// coding.
func isJSON(header http.Header) bool {
	types := header["Content-Type"]
	if len(types) != 1 || len(header["Content-Encoding"]) > 0 {
		return false
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	charset, ok := params["charset"]
	return err == nil && mediaType == "application/json" && (!ok || strings.EqualFold(charset, "utf-8"))
}

// noBody is for a request that has nothing to say: it may have an empty object.
func (c *call) noBody() error {
	data, err := c.optionalBody()
	if err != nil {
		return err
	}
	return decodeObject(data)
}
