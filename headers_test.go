package storageapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
)

// TestHeaderListsMatchOpenAPI compares the lists for CORS middleware with the OpenAPI document.
func TestHeaderListsMatchOpenAPI(t *testing.T) {
	var document map[string]any
	if err := json.Unmarshal(defaultDocument(t), &document); err != nil {
		t.Fatal(err)
	}
	sent, answered := []string{"Content-Type"}, []string{"Allow"} // headers that the document omits
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if name, _ := value["name"].(string); value["in"] == "header" {
				sent = append(sent, name)
			}
			if headers, ok := value["headers"].(map[string]any); ok {
				for name := range headers {
					answered = append(answered, name)
				}
			}
			for name, member := range value {
				if name != "examples" { // examples can contain request headers of webhooks
					walk(member)
				}
			}
		case []any:
			for _, member := range value {
				walk(member)
			}
		}
	}
	components, _ := document["components"].(map[string]any)
	walk(document["paths"])
	walk(map[string]any{"responses": components["responses"], "securitySchemes": components["securitySchemes"]})
	for name, parameter := range components["parameters"].(map[string]any) {
		if !strings.HasPrefix(name, "StandardWebhook") && name != "ServiceSignature" {
			walk(parameter)
		}
	}
	check := func(what string, want, got []string) {
		t.Helper()
		slices.Sort(want)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Errorf("%s (-the document +the code):\n%s", what, diff)
		}
	}
	answered = slices.DeleteFunc(answered, func(name string) bool { return name == "Cache-Control" }) // browsers expose it by default
	check("sent", sent, storageapi.RequestHeaders())
	check("answered", answered, storageapi.ResponseHeaders())
}
