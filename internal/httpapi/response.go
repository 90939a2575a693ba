package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A response is a successful response to a request.
type response struct {
	status   int
	location string
	etag     string
	body     []byte // JSON and a newline; nil means no body
	verbatim bool   // body is an event's body, exactly as it was sent
}

func ok(value any) (response, error) {
	body, err := encode(value)
	return response{status: http.StatusOK, body: body}, err
}

// tagged returns a 200 response for a resource with the given entity tag.
func tagged(tag string, value any) (response, error) {
	body, err := encode(value)
	return response{status: http.StatusOK, etag: tag, body: body}, err
}

// created returns the response to a POST that has created the resource with the given ID.
func created(c *call, id string, value any) (response, error) {
	body, err := encode(value)
	return response{status: http.StatusCreated, location: pathOf(c.Request) + "/" + id, body: body}, err
}

func noContent() response { return response{status: http.StatusNoContent} }

func (a response) write(w http.ResponseWriter) {
	header := w.Header()
	if a.location != "" {
		header.Set("Location", a.location)
	}
	if a.etag != "" {
		header.Set("ETag", a.etag)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	if a.verbatim {
		header.Set("Content-Type", "application/json")
		header.Set("Content-Length", strconv.Itoa(len(a.body))) // for HEAD as well
	}
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // an error means that the client is gone
}

func encode(value any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // keeps "&" in URLs readable
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// pathOf returns the path that the client requested. It is longer than r.URL.Path if the host has
// stripped a prefix.
func pathOf(r *http.Request) string {
	here := r.URL.EscapedPath()
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return here
	}
	full := asked.EscapedPath()
	if !strings.HasSuffix(full, here) || strings.HasPrefix(full, "//") { // a Location of //x/y would lead to the host x
		return here
	}
	return full
}

// A timestamp is encoded as an RFC 3339 string in UTC with milliseconds, or as null if
// it is zero.
type timestamp time.Time

func (t timestamp) MarshalJSON() ([]byte, error) {
	at := time.Time(t)
	if at.IsZero() {
		return []byte("null"), nil
	}
	return []byte(at.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// accepted returns the response to a POST that has started a job. location is the path of the job; if
// empty, it is the path of the request.
func accepted(location string, value any) (response, error) {
	body, err := encode(value)
	return response{status: http.StatusAccepted, location: location, body: body}, err
}
