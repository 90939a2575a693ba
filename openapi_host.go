package storageapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// A hostDocument is openapi.json with edits for the settings in which a host's Config differs from
// the defaults. All other bytes stay the same.
type hostDocument struct{ text []byte }

// newHostDocument returns the document for a Handler with the given Config and scopes.
func newHostDocument(config *Config, prefix string, offered scopes.Set) []byte {
	d := &hostDocument{openAPI}
	d.setLimits(config) // before adding the host's texts, which the edits must not touch
	d.setSecurity(config)
	if prefix != httpapi.DefaultPrefix {
		d.text = bytes.ReplaceAll(d.text, []byte(`"`+httpapi.DefaultPrefix+`/`), []byte(`"`+prefix+`/`))
	}
	d.setReadScopes(config)
	types := d.hideEvents(config.Alerts.HideEvents)
	d.setScopes(config, offered)
	d.setEvents(types, config.Webhooks.Events)
	return d.text
}

// replace replaces the first text, which must occur exactly once, by the second. Both are JSON.
func (d *hostDocument) replace(before, after string) {
	if bytes.Count(d.text, []byte(before)) != 1 {
		panic("storageapi: openapi.json does not contain exactly once: " + before) // tests check every replacement
	}
	d.text = bytes.Replace(d.text, []byte(before), []byte(after), 1)
}

// replaceAll replaces all occurrences of the first text by the second.
func (d *hostDocument) replaceAll(before, after string) {
	if !bytes.Contains(d.text, []byte(before)) {
		panic("storageapi: openapi.json does not contain: " + before)
	}
	d.text = bytes.ReplaceAll(d.text, []byte(before), []byte(after))
}

// replaceThrough replaces the text from the first occurrence of from through the next occurrence of
// end.
func (d *hostDocument) replaceThrough(from, end, after string) {
	before, rest, found := bytes.Cut(d.text, []byte(from))
	_, rest, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		panic("storageapi: openapi.json has not: " + from)
	}
	d.text = slices.Concat(before, []byte(after), rest)
}

// dropMembers removes each line that contains the string text. Such a line must be a whole member
// of an object.
func (d *hostDocument) dropMembers(text string) {
	var kept [][]byte
	for line := range bytes.SplitSeq(d.text, []byte("\n")) {
		if !bytes.Contains(line, []byte(text)) {
			kept = append(kept, line)
		} else if last := len(kept) - 1; !bytes.HasSuffix(line, []byte(",")) {
			kept[last] = bytes.TrimSuffix(kept[last], []byte(","))
		}
	}
	d.text = bytes.Join(kept, []byte("\n"))
}

// setScopes lists the offered scopes and describes those declared by the host.
func (d *hostDocument) setScopes(config *Config, offered scopes.Set) {
	if len(config.Scopes)+len(config.HideScopes) == 0 {
		return
	}
	const separator = ",\n          "
	var names strings.Builder
	for s := range offered.All() {
		names.WriteString(separator + inJSON(s))
	}
	d.replaceThrough(`"environments:read", "environments:write",`, "\n        ]", strings.TrimPrefix(names.String(), separator)+"\n        ]")
	for _, s := range config.HideScopes {
		d.dropMembers(inJSON(s)) // examples
	}
	if len(config.Scopes) == 0 {
		return
	}
	var permits strings.Builder
	permits.WriteString("The service's own scopes:")
	for _, s := range config.Scopes {
		fmt.Fprintf(&permits, "\n- `%s`: %s", s.Scope, s.Description)
	}
	d.replace(`"Scope": {
        "type": "string",`, `"Scope": {
        "type": "string",
        "description": `+inJSON(permits.String())+`,`)
}

// hideEvents removes the hidden event types of package alerts and the examples that contain them.
// It returns the remaining types.
func (d *hostDocument) hideEvents(hidden []webhooks.EventType) []webhooks.EventType {
	all := alerts.EventTypes()
	types := slices.DeleteFunc(slices.Clone(all), func(t webhooks.EventType) bool { return slices.Contains(hidden, t) })
	d.replaceTypes(all, types)
	for _, t := range all {
		if slices.Contains(types, t) {
			continue
		}
		d.replaceThrough("    "+inJSON(t)+": {\n", "\n    },\n", "")
		d.replaceThrough(`      "`+typeName(t)+`Event": {`, "\n      },\n", "")
		if t == alerts.TypeBalanceLow {
			d.replace(`, "examples": ["balance.low"]`, "")
			d.replaceAll(`"balanceThreshold", `, "")
			d.dropMembers(`"balanceThreshold": {`)
			d.dropMembers(`      "Amount": {`)
			d.replaceThrough(`      "Threshold": {`, "\n      },\n", "")
		}
		d.dropMembers(inJSON(t)) // examples
	}
	return types
}

// replaceTypes replaces the values that the schemas EventType and SubscribedType allow.
func (d *hostDocument) replaceTypes(before, after []webhooks.EventType) {
	d.replace(enumOf(before), enumOf(after))
	star := []webhooks.EventType{webhooks.AllEvents}
	d.replace(enumOf(slices.Concat(star, before)), enumOf(slices.Concat(star, after)))
}

// enumOf returns the JSON list of the values that a schema of event types allows.
func enumOf(types []webhooks.EventType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = inJSON(t)
	}
	return `"enum": [` + strings.Join(names, ", ") + "]\n"
}

// setReadScopes documents the scope that each event type requires.
func (d *hostDocument) setReadScopes(config *Config) {
	const files, others = "`files:read` for `files.expiring`, ", "`account:read` for all others."
	var behind strings.Builder
	if !slices.Contains(config.Alerts.HideEvents, alerts.TypeFilesExpiring) {
		behind.WriteString(files)
	}
	for _, e := range config.Webhooks.Events {
		if e.Scope != scopes.AccountRead {
			fmt.Fprintf(&behind, "`%s` for `%s`, ", e.Scope, e.Type)
		}
	}
	d.replace(files+others, behind.String()+others)
}

// setSecurity documents the Bearer header, the realm, and the scopes that the host's event types
// require.
func (d *hostDocument) setSecurity(config *Config) {
	const files = `{"ApiKey": ["files:read"]}, `
	var alternatives string
	known := scopes.Of(scopes.AccountRead)
	if !slices.Contains(config.Alerts.HideEvents, alerts.TypeFilesExpiring) {
		alternatives, known = files, known.With(scopes.FilesRead)
	}
	for _, e := range config.Webhooks.Events {
		if !known.Has(e.Scope) {
			known = known.With(e.Scope)
			alternatives += fmt.Sprintf(`{"ApiKey": [%s]}, `, inJSON(e.Scope))
		}
	}
	d.replaceAll(files, alternatives)
	if config.Realm != "" {
		d.replaceAll(`realm=\"storageapi\"`, `realm=\"`+config.Realm+`\"`)
	}
	if !config.Bearer {
		return
	}
	d.text = regexp.MustCompile(`\{"ApiKey": (\[[^]]*\])\}`).ReplaceAll(d.text, []byte(`{"ApiKey": $1}, {"Bearer": $1}`))
	d.replace(`"securitySchemes": {`, `"securitySchemes": {
      "Bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "The value of a valid API key, in place of the header Api-Key. A request with both is answered 401."
      },`)
	d.replace(`"const": "ApiKey realm=\"`+cmp.Or(config.Realm, "storageapi")+`\""`, `"pattern": "^(ApiKey|Bearer) realm=\"[^\"]+\"$"`)
	d.replace(`"pattern": "^ApiKey realm=`, `"pattern": "^(ApiKey|Bearer) realm=`)
	d.replaceAll("The Api-Key header is missing, or the key in it is invalid or expired.", "The key is missing, invalid or expired. Send it in one header: Api-Key, or Authorization with the scheme Bearer.")
}

// setEvents adds the host's own event types to the given ones.
func (d *hostDocument) setEvents(types []webhooks.EventType, declared []webhooks.EventDeclaration) {
	if len(declared) == 0 {
		return
	}
	var hooks, schemas strings.Builder
	taken := map[string]bool{typeName(webhooks.TypeTest): true}
	for _, t := range types {
		taken[typeName(t)] = true
	}
	all := slices.Clone(types)
	for _, e := range declared {
		all = append(all, e.Type)
		name := typeName(e.Type)
		for n := 2; taken[name]; n++ {
			name = typeName(e.Type) + fmt.Sprint(n)
		}
		taken[name] = true
		hooks.WriteString(hookOf(e, name))
		fmt.Fprintf(&schemas, `"%sEvent": {
        "type": "object",
        "required": ["id", "type", "timestamp", "data"],
        "properties": {
          "id": {"$ref": "#/components/schemas/EventId"},
          "type": {"type": "string", "const": %s},
          "timestamp": {"$ref": "#/components/schemas/Timestamp"},
          "data": %s
        }
      },
      `, name, inJSON(e.Type), dataSchema(e))
	}
	d.replaceTypes(types, all)
	d.replace(`"webhook.test": {`, hooks.String()+`"webhook.test": {`)
	d.replace(`"WebhookTestEvent": {`, schemas.String()+`"WebhookTestEvent": {`)
}

// hookOf returns the entry of an event type in the document's webhooks section.
func hookOf(e webhooks.EventDeclaration, name string) string {
	examples := ""
	if e.Example != nil {
		examples = fmt.Sprintf(`,
              "examples": {"one": {"value": {"id": "evt_01JD5XQ0000000000000000000", "type": %s, "timestamp": "2026-11-20T12:00:00.001Z", "data": %s}}}`,
			inJSON(e.Type), inJSON(e.Example))
	}
	return fmt.Sprintf(`%s: {
      "post": {
        "operationId": "on%s",
        "tags": ["Events"],
        "security": [],
        "summary": %s,
        "description": %s,
        "parameters": [
          {"$ref": "#/components/parameters/ServiceSignature"},
          {"$ref": "#/components/parameters/StandardWebhookId"},
          {"$ref": "#/components/parameters/StandardWebhookTimestamp"},
          {"$ref": "#/components/parameters/StandardWebhookSignature"}
        ],
        "requestBody": {
          "required": true,
          "content": {
            "application/json": {
              "schema": {"$ref": "#/components/schemas/%sEvent"}%s
            }
          }
        },
        "responses": {
          "2XX": {"$ref": "#/components/responses/EventTaken"},
          "410": {"$ref": "#/components/responses/EventGone"},
          "default": {"$ref": "#/components/responses/EventFailed"}
        }
      }
    },
    `, inJSON(e.Type), name, inJSON(e.Description), inJSON(fmt.Sprintf("Subscribing to it requires the scope `%s`.", e.Scope)), name, examples)
}

// typeName returns an identifier for a type: "TeamsCreated" for "teams.created".
func typeName(t webhooks.EventType) string {
	var name strings.Builder
	for _, word := range strings.FieldsFunc(string(t), func(r rune) bool { return r == '.' || r == '_' }) {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// dataSchema returns the schema of an event type's payloads: the declared schema, or one
// derived from the example.
func dataSchema(e webhooks.EventDeclaration) string {
	if e.Schema != nil {
		return inJSON(e.Schema) // compact
	}
	var example any
	if err := json.Unmarshal([]byte(inJSON(e.Example)), &example); err != nil {
		panic(err) // impossible: it has been encoded before
	}
	return inJSON(schemaOf(example))
}

// schemaOf returns a schema for the JSON types in an example value.
func schemaOf(value any) map[string]any {
	switch value := value.(type) {
	case map[string]any:
		properties := make(map[string]any)
		for name, part := range value {
			properties[name] = schemaOf(part)
		}
		return map[string]any{"type": "object", "properties": properties}
	case []any:
		if len(value) > 0 {
			return map[string]any{"type": "array", "items": schemaOf(value[0])}
		}
		return map[string]any{"type": "array", "items": map[string]any{}}
	case string:
		return map[string]any{"type": "string"}
	case float64:
		return map[string]any{"type": "number", "format": "double"}
	case bool:
		return map[string]any{"type": "boolean"}
	}
	return map[string]any{} // null: the schema allows any value
}

// setLimits documents the names and limits that the Config sets.
func (d *hostDocument) setLimits(config *Config) {
	if prefix := config.Keys.Prefix; prefix != "" {
		d.replaceAll("sak_", prefix+"_")
		d.replace("`sak` by default", "`"+prefix+"`")
	}
	if name := config.Webhooks.SignatureHeader; name != "" {
		d.replace(`"name": "X-Service-Signature"`, `"name": `+inJSON(name))
	}
	d.setCount("An account can have 1,000 keys, unless the service sets another limit.", "keys", config.Keys.MaxPerAccount)
	d.setCount("An account can have 100 webhooks, unless the service sets another limit.", "webhooks", config.Webhooks.MaxPerAccount)
	if unit := config.Alerts.Unit; unit != "" {
		text := inJSON("An amount of " + unit)
		d.replaceAll(`"An amount of SUI`, strings.TrimSuffix(text, `"`))
	}
	if timeout := config.Webhooks.Outbound.Timeout; timeout > 0 {
		d.replaceAll("within 15 seconds", "within "+spell(timeout))
	}
	switch limit := config.Webhooks.Retry.DisableAfter; {
	case limit < 0:
		d.replaceAll("the receiver responded 410, or all attempts had failed for 5 days.", "the receiver responded 410.")
	case limit > 0:
		d.replaceAll("all attempts had failed for 5 days", "all attempts had failed for "+spell(limit))
	}
	if ratios := config.Alerts.ApproachingRatios; ratios != nil {
		var list []string
		for _, ratio := range ratios {
			list = append(list, fmt.Sprintf("%.6g%%", 100*ratio))
		}
		d.replaceAll("Sent once a period, at 80% of the limit unless the service sets another ratio.", sent("Sent once a period for each of these parts of the limit: ", list))
	}
	if leads := config.Alerts.FileLeads; leads != nil {
		leads = slices.Clone(leads)
		slices.Sort(leads)
		var list []string
		for _, lead := range slices.Backward(leads) {
			list = append(list, spell(lead))
		}
		d.replaceAll("Sent 7 days and 1 day before each file expires, unless the service sets other times.", sent("Sent so long before each file expires: ", list))
	}
	if rate := config.RateLimit; rate.PerSecond > 0 {
		may := fmt.Sprintf("an API key can make %.6g requests a second", rate.PerSecond)
		if rate.Burst > 0 {
			may += fmt.Sprintf(", %d of them at once", rate.Burst)
		}
		if rate.PerAccount >= 0 {
			may += fmt.Sprintf("; all keys of an account together can make %d times as many", cmp.Or(rate.PerAccount, 4))
		}
		d.replace("the service may limit the requests of each API key, and those of all keys of an account together. Then every response", may+". Every response")
	}
}

// sent returns begin followed by the list. For an empty list it returns a sentence saying that the
// service does not send the event by itself.
func sent(begin string, list []string) string {
	if len(list) == 0 {
		return "This service does not send it by itself."
	}
	return begin + strings.Join(list, ", ") + "."
}

// setCount puts limit into a sentence. Zero keeps the default; a negative limit removes the
// sentence.
func (d *hostDocument) setCount(sentence, what string, limit int) {
	switch {
	case limit < 0:
		d.replace(" "+sentence, "")
	case limit > 0:
		d.replace(sentence, fmt.Sprintf("An account can have %d %s.", limit, what))
	}
}

// spell writes whole days or seconds in words, and other durations as [time.Duration.String] does.
func spell(d time.Duration) string {
	const day = 24 * time.Hour
	n, unit := int64(d/time.Second), "second"
	switch {
	case d%day == 0:
		n, unit = int64(d/day), "day"
	case d%time.Second != 0:
		return d.String()
	}
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// inJSON returns value as JSON, without escaping "<", ">" and "&". It panics if the value cannot be
// encoded, which does not happen because the services reject such values earlier.
func inJSON(value any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
