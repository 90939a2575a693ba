package contract

import (
	"encoding/json"
	"iter"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"github.com/storageapi/storageapi"
)

// A document is the OpenAPI document as kin-openapi reads it.
type document struct {
	spec       *openapi3.T
	operations []*operation // all operations of the paths, in order of their IDs

	// otherwise documents, by status, the responses to requests that match no operation. These are
	// 404 and 405, in addition to the responses that every request can get.
	otherwise map[int]*operation

	text      []byte
	prefix    string                   // prefix of the paths
	configure func(*storageapi.Config) // makes a host match the document; nil means the default
}

// An operation is a documented method of a path.
type operation struct {
	routers.Route
	id string
}

func load(t testing.TB) *document {
	t.Helper()
	text, err := os.ReadFile("../../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, text)
	d.prefix = "/v2"
	return d
}

func parse(t testing.TB, text []byte) *document {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	components := tree["components"].(map[string]any)
	otherwise := tree["x-otherwise"].(map[string]any)
	for status, response := range otherwise {
		components["responses"].(map[string]any)["otherwise-"+status] = response
	}
	closeObjects(components["schemas"])

	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{spec: spec, text: text, otherwise: make(map[int]*operation)}
	for _, path := range spec.Paths.InMatchingOrder() {
		item := spec.Paths.Value(path)
		for method, op := range item.Operations() {
			d.operations = append(d.operations, d.operation(path, item, method, op))
		}
	}
	slices.SortFunc(d.operations, func(a, b *operation) int { return strings.Compare(a.id, b.id) })
	for status := range otherwise {
		number, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		op := openapi3.NewOperation()
		op.OperationID = "otherwise-" + status
		op.Responses = openapi3.NewResponses()
		op.Responses.Delete("default")
		for status, name := range map[string]string{status: op.OperationID, "401": "Unauthorized", "429": "TooMany", "500": "Internal"} {
			if component := spec.Components.Responses[name]; component != nil {
				op.Responses.Set(status, component)
			}
		}
		d.otherwise[number] = d.operation("", &openapi3.PathItem{}, "", op)
	}
	return d
}

func (d *document) operation(path string, item *openapi3.PathItem, method string, op *openapi3.Operation) *operation {
	return &operation{
		Route: routers.Route{Spec: d.spec, Path: path, PathItem: item, Method: method, Operation: op},
		id:    op.OperationID,
	}
}

// byID returns the operation with this ID.
func (d *document) byID(t testing.TB, id string) *operation {
	t.Helper()
	for _, op := range d.operations {
		if op.id == id {
			return op
		}
	}
	t.Fatalf("the document has no operation %s", id)
	return nil
}

// closeObjects makes all schemas reject undocumented fields.
func closeObjects(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, said := node["additionalProperties"]; !said && node["type"] == "object" {
			node["additionalProperties"] = false
		}
		for _, value := range node {
			closeObjects(value)
		}
	case []any:
		for _, value := range node {
			closeObjects(value)
		}
	}
}

// parameters returns the parameters of both the path and the operation.
func (o *operation) parameters() []*openapi3.Parameter {
	var list []*openapi3.Parameter
	for _, parameters := range []openapi3.Parameters{o.PathItem.Parameters, o.Operation.Parameters} {
		for _, ref := range parameters {
			list = append(list, ref.Value)
		}
	}
	return list
}

// parameterNames returns the names of all parameters.
func (o *operation) parameterNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, parameter := range o.parameters() {
			if !yield(parameter.Name) {
				return
			}
		}
	}
}

// path returns the operation's path with its parameters replaced by values, in order. It also
// returns the values by parameter name.
func (o *operation) path(values ...string) (path string, byName map[string]string) {
	byName = make(map[string]string)
	segments := strings.Split(o.Path, "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "{") && len(values) > 0 {
			byName[strings.Trim(segment, "{}")] = values[0]
			segments[i], values = values[0], values[1:]
		}
	}
	return strings.Join(segments, "/"), byName
}

// TestDocument validates the document and its examples with kin-openapi.
func TestDocument(t *testing.T) {
	t.Run("default", func(t *testing.T) { testDocument(t, load(t)) })
	t.Run("of a host", func(t *testing.T) { testDocument(t, loadOwn(t)) })
}

func testDocument(t *testing.T, d *document) {
	if err := d.spec.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Error(err)
	}
	for _, op := range d.operations {
		for _, status := range []int{http.StatusUnauthorized, http.StatusInternalServerError, http.StatusServiceUnavailable} {
			if op.Operation.Responses.Status(status) == nil {
				t.Errorf("%s: no %d", op.id, status)
			}
		}
		for status, response := range op.Operation.Responses.Map() {
			for name, header := range response.Value.Headers {
				if !header.Value.Required && status != "500" && status != "503" && (status != "403" || name != "WWW-Authenticate") && !strings.HasPrefix(name, "X-RateLimit-") {
					t.Errorf("%s %s: header %s is not required", op.id, status, name)
				}
			}
			absent := []string{
				"unknownScopes", "held", "field", "errors", "requiredScopes", "requiredResources", "resources", "resource",
				"allowedNetworks", "rateLimit", "lastUsedFrom", "scopesUsed", "networksUsed", "missing", "network", "body",
				"paused", "pausedUntil", "headers", "eventScopes", "signatures", "publicKeys",
			}
			switch op.id {
			case "createWebhook":
				absent = append(absent, "balanceThreshold")
			case "createKey":
				absent = append(absent, "labels")
			}
			for _, content := range response.Value.Content {
				checkRequired(t, op.id+" "+status, content.Schema, absent...)
			}
		}
	}
	for name, item := range d.spec.Webhooks {
		checkRequired(t, name, item.Post.RequestBody.Value.Content["application/json"].Schema, "name", "environmentId", "ratio", "invoiceId", "total")
	}
}

// checkRequired checks that the document marks all fields of responses and events as required,
// except for the fields in but. A missing value is sent as null.
func checkRequired(t *testing.T, where string, ref *openapi3.SchemaRef, but ...string) {
	if ref == nil {
		return
	}
	for name, property := range ref.Value.Properties {
		if !slices.Contains(append(but, ref.Value.Required...), name) {
			t.Errorf("%s: %s is not required", where, name)
		}
		checkRequired(t, where+" "+name, property, but...)
	}
	checkRequired(t, where, ref.Value.Items, but...)
	for _, one := range ref.Value.OneOf {
		checkRequired(t, where, one, but...)
	}
}
