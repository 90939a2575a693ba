package listed

import (
	"errors"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/store/driver"
)

// headerTexts returns each header as "name: value", or only the name if the value is a secret.
func headerTexts(list []driver.Header) (texts []string) {
	for _, h := range list {
		text := h.Name
		if !h.Secret {
			text += ": " + h.Value
		}
		texts = append(texts, text)
	}
	return texts
}

func parseHeaders(texts []string) (list []driver.Header, err error) {
	for _, text := range texts {
		name, value, plain := strings.Cut(text, ": ")
		list = append(list, driver.Header{Name: name, Value: value, Secret: !plain})
	}
	return list, nil
}

// HeaderSecrets returns the values of a webhook's secret headers as a single string. Stores keep
// this string separate from the other fields, so that they can seal it.
func (w *Webhook) HeaderSecrets() string { return headerSecrets(w.Headers) }

func headerSecrets(list []driver.Header) string {
	var values []string
	for _, h := range list {
		if h.Secret {
			values = append(values, h.Value)
		}
	}
	return strings.Join(values, "\n")
}

var errHeaderSecrets = errors.New("the values of secret headers do not match their names")

// SetHeaderSecrets sets the values of the secret headers from a result of HeaderSecrets. The other
// fields must be set before.
func (w *Webhook) SetHeaderSecrets(text string) error {
	list, rest, more := slices.Clone(w.Headers), text, text != ""
	for i := range list {
		if !list[i].Secret {
			continue
		}
		if !more {
			return errHeaderSecrets
		}
		list[i].Value, rest, more = strings.Cut(rest, "\n")
	}
	if more {
		return errHeaderSecrets
	}
	w.Headers = list
	return nil
}
