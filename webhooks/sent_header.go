package webhooks

import (
	"net/http"
	"strconv"

	"github.com/storageapi/storageapi/signing"
)

// SentHeader returns the header of the request that the attempt sent for the event, as
// this service sends it: with "[redacted]" in place of the signatures, and without Host
// and Content-Length. It is nil if it did not come to a request, for want of a
// connection; an attempt that timed out may not have come to one either.
func (s *WebhookService) SentHeader(eventID string, attempt Attempt) http.Header {
	switch attempt.Class {
	case ClassDNS, ClassBlocked, ClassConnect, ClassTLS, ClassInternal, ClassExpired:
		return nil
	}
	header := http.Header{
		"Content-Type":          {contentType},
		"User-Agent":            {userAgent},
		signing.HeaderID:        {eventID},
		signing.HeaderTimestamp: {strconv.FormatInt(attempt.StartedAt.Unix(), 10)},
		signing.HeaderSignature: {redacted},
	}
	header[s.dispatcher.client.header] = []string{redacted}
	return header
}
