package httpapi

import (
	"encoding/json"
	"fmt"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/webhooks"
)

// A headerView is a webhook's request header, without a secret value.
type headerView struct {
	Value  *string `json:"value"`
	Secret bool    `json:"secret"`
}

// viewHeaders returns the views of headers by name.
func viewHeaders(headers []webhooks.Header) map[string]headerView {
	views := make(map[string]headerView, len(headers))
	for i := range headers {
		h := &headers[i]
		view := headerView{&h.Value, h.Secret}
		if h.Secret {
			view.Value = nil
		}
		views[h.Name] = view
	}
	return views
}

// headersField returns the field with a webhook's headers: an object with a member for each. In a
// change, null removes a header.
func headersField(target *[]webhooks.Header, change bool) field {
	const name = "headers"
	return field{name, false, func(raw json.RawMessage) error {
		if raw[0] == 'n' && !change {
			return nil
		}
		if raw[0] != '{' {
			return invalid(name, "must be an object, not "+kind(raw))
		}
		return eachMember(raw, func(header string, raw json.RawMessage) error {
			h := webhooks.Header{Name: header}
			switch {
			case raw[0] == 'n' && change:
			case raw[0] != '{':
				return invalid(name, fmt.Sprintf("must have an object with value and secret for %.32q, not %s", header, kind(raw)))
			default:
				err := decodeObject(raw, required("value", &h.Value, identity), optional("secret", &h.Secret, identity))
				if wrong := input.InvalidFields(err); len(wrong) > 0 {
					return invalid(name, fmt.Sprintf("have an invalid %.32q: %s %s", header, wrong[0].Field, wrong[0].Reason))
				}
				if err == nil && h.Value == "" {
					err = invalid(name, fmt.Sprintf("must have a value for %.32q", header))
				}
				if err != nil {
					return err
				}
			}
			*target = append(*target, h)
			return nil
		})
	}}
}
