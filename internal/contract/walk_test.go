package contract

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/storageapi/storageapi/scopes"
)

var (
	seed     = flag.Uint64("seed", 0, "of TestWalk; 0: by the clock")
	requests = flag.Int("requests", 2000, "how many TestWalk makes")
)

// beyondSchemas matches the API's errors for rules that a schema cannot express. A request that
// breaks such a rule is still valid according to the document. The list includes boolean
// parameters, because for them the validator accepts 0, 1 and t, unlike the API.
var beyondSchemas = regexp.MustCompile(`^((expiresAt|pausedUntil) must be (in the future|before the year|an RFC 3339)|paused must not be false|url must |cursor must |balanceThreshold must be at most|(from|to|since|until|unusedSince) must |failed must be true or false|allowedNetworks must be IP networks)`)

// A walker makes random calls based on the document.
type walker struct {
	*generator
	*host
	weak string // a key without permissions

	// Path parameters of existing recoveries and deliveries, by the last parameter. Random values
	// would rarely match an existing object.
	paths map[string][]map[string]string
}

// TestWalk makes random calls with values that are valid or invalid according to the document. No
// response may be a 5xx or undocumented. No invalid request may succeed, and no valid request may
// be rejected as invalid.
func TestWalk(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", *seed)
	w := &walker{
		generator: &generator{Rand: rand.New(rand.NewPCG(*seed, 0)), pools: make(map[string][]any)},
		host:      newHost(t, load(t), nil),
		paths:     make(map[string][]map[string]string),
	}
	_, w.weak = w.key("weak", scopes.Of(scopes.PublishersRead))
	w.pools["WebhookURL"] = []any{w.receiver.url, w.receiver.url + "/fails", w.receiver.url + "/gone"}

	answers := make(map[int]int)
	for i := range *requests {
		if i%50 == 0 {
			w.learn("EventId", w.publish(pick(w.generator, everyEvent())))
		}
		c, sure := w.call()
		done, err := w.exchange(c)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		answers[done.status]++
		message, _ := done.object()["error"].(map[string]any)
		switch {
		case done.status >= 500:
			t.Fatalf("request %d: %v", i, done)
		case done.invalid != nil && done.status < 300 && sure:
			t.Fatalf("request %d succeeded, which is bad by the document: %v", i, done)
		case done.invalid == nil && done.status == http.StatusBadRequest && sure && c.method != http.MethodHead && !beyondSchemas.MatchString(fmt.Sprint(message["message"])):
			t.Fatalf("request %d was refused, which is good by the document: %v", i, done)
		}
		w.learnFrom(done)
	}
	t.Logf("answers by status: %v", answers)
}

// learn adds a value to the pool of a schema and drops the oldest values beyond 20.
func (w *walker) learn(schema string, value any) {
	pool := append(w.pools[schema], value)
	w.pools[schema] = pool[max(0, len(pool)-20):]
}

// forget removes the ID of a deleted object from all pools and paths.
func (w *walker) forget(id string) {
	for schema, pool := range w.pools {
		w.pools[schema] = slices.DeleteFunc(pool, func(value any) bool { return value == id })
	}
	for last, paths := range w.paths {
		w.paths[last] = slices.DeleteFunc(paths, func(path map[string]string) bool { return path["id"] == id })
	}
}

func (w *walker) learnFrom(done *exchange) {
	if done.status == http.StatusNoContent {
		w.forget(done.ids["id"])
	}
	if id := done.text("id"); id != "" {
		for prefix, schema := range map[string]string{"key_": "KeyId", "wh_": "WebhookId", "rec_": "RecoveryId"} {
			if strings.HasPrefix(id, prefix) {
				w.learn(schema, id)
			}
		}
	}
	webhook := done.ids["id"]
	if recovery := done.text("id"); done.op.id == "createRecovery" && done.status == http.StatusAccepted {
		w.paths["recoveryId"] = append(w.paths["recoveryId"], map[string]string{"id": webhook, "recoveryId": recovery})
	}
	if deliveries, _ := done.object()["data"].([]any); done.op.id == "listDeliveries" && len(deliveries) > 0 {
		event, _ := pick(w.generator, deliveries).(map[string]any)["eventId"].(string)
		w.paths["eventId"] = append(w.paths["eventId"], map[string]string{"id": webhook, "eventId": event})
	}
	if cursor := done.text("nextCursor"); cursor != "" {
		w.learn("Cursor", cursor)
	}
	if tag := done.header.Get("ETag"); tag != "" {
		w.learn("IfMatch", tag)
	}
}

// call returns a random call. sure is false if the call may be spoilt in a way that the validator
// does not detect.
func (w *walker) call() (c call, sure bool) {
	if w.chance(5) {
		return w.stray(), false
	}
	op := pick(w.generator, w.operations)
	c = call{op: op, method: op.Method, path: op.Path, ids: make(map[string]string), header: make(http.Header)}
	if op.Method == http.MethodGet && w.chance(10) {
		c.method = http.MethodHead
	}
	sure = true
	w.authenticate(&c)
	var known map[string]string
	for _, parameter := range op.parameters() {
		if paths := w.paths[parameter.Name]; len(paths) > 0 && w.chance(80) {
			known = pick(w.generator, paths)
		}
	}
	var queries []string
	for _, parameter := range op.parameters() {
		var value any
		switch {
		case w.chance(85):
			value = w.value(parameter.Schema)
		default:
			value = w.junk()
		}
		switch {
		case parameter.In == openapi3.ParameterInPath:
			text := fmt.Sprint(value)
			if known != nil {
				text = known[parameter.Name]
			}
			if text == "" {
				text = "x" // with an empty segment, it would be a different path
			}
			c.ids[parameter.Name] = text
			c.path = strings.ReplaceAll(c.path, "{"+parameter.Name+"}", strings.ReplaceAll(url.QueryEscape(text), "+", "%20"))
		case w.chance(40), parameter.Name == "wait": // requests with wait would make the walk too long
		case parameter.In == openapi3.ParameterInHeader:
			if text := fmt.Sprint(value); strings.Trim(text, visible) == "" && text != "" {
				c.header.Set(parameter.Name, text)
			}
		default:
			list, many := value.([]any)
			if !many {
				list = []any{value}
			}
			for _, value := range list {
				queries = append(queries, parameter.Name+"="+url.QueryEscape(fmt.Sprint(value)))
			}
		}
	}
	c.query = strings.Join(queries, "&")
	if w.chance(3) {
		c.query += pick(w.generator, []string{"&limit=1", "&cursor=a", "&%zz", "&a;b", "?", "&=&="})
		sure = false
	}
	if op.Operation.RequestBody != nil || w.chance(3) {
		sure = w.content(&c) && sure
	}
	return c, sure
}

// visible lists the characters that a header value may contain.
const visible = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

// authenticate sets the key of the call. The key may be invalid.
func (w *walker) authenticate(c *call) {
	keys := []string{w.admin}
	switch w.IntN(30) {
	case 0:
		keys = nil
	case 1:
		keys = []string{w.admin, w.admin}
	case 2:
		keys = []string{w.weak}
	case 3:
		keys = []string{pick(w.generator, []string{"", "a", w.admin + "x", w.admin[1:], strings.ToUpper(w.admin), "Bearer " + w.admin})}
	}
	if keys != nil {
		c.header["Api-Key"] = keys
	}
}

// content sets the body of the call. sure is as in call.
func (w *walker) content(c *call) (sure bool) {
	value := w.junk()
	if body := c.op.Operation.RequestBody; body != nil {
		value = w.value(body.Value.Content["application/json"].Schema)
	}
	for range max(0, w.IntN(5)-2) { // leaves three in five bodies unspoilt
		value = w.spoil(value)
	}
	data, err := json.Marshal(value)
	if err != nil {
		w.Fatal(err)
	}
	contentType := "application/json"
	if w.chance(5) {
		contentType = pick(w.generator, []string{"", "text/plain", "application/json; charset=utf-8", "application/json; charset=latin1", "application/jsonp", "application/*", "multipart/form-data", ";", "application/x-www-form-urlencoded"})
	}
	if contentType != "" {
		c.header.Set("Content-Type", contentType)
	}
	sure = strings.HasPrefix(contentType, "application/json")
	if w.chance(4) {
		c.header.Set("Content-Encoding", pick(w.generator, []string{"gzip", "identity", ""}))
		sure = false
	}
	if w.chance(8) {
		data, sure = w.spoilText(data), false
	}
	c.body = data
	return sure
}

// spoilText changes a body in a way that some JSON decoders accept and others reject.
func (w *walker) spoilText(data []byte) []byte {
	text := string(data)
	switch w.IntN(9) {
	case 0:
		return nil
	case 1:
		return data[:w.IntN(len(data)+1)]
	case 2:
		return append(data, pick(w.generator, []string{"{}", ",", "x", "\x00", " \n"})...)
	case 3:
		return []byte("\ufeff" + text)
	case 4: // duplicate fields
		return []byte(strings.TrimSuffix(text, "}") + "," + strings.TrimPrefix(text, "{"))
	case 5:
		return []byte(strings.Repeat("[", 20000) + text)
	case 6:
		return []byte(strings.Repeat(" ", 65536) + text)
	case 7:
		return []byte(strings.ReplaceAll(text, "a", "\xff"))
	}
	return []byte(strings.ReplaceAll(text, "e", `\ud800`))
}

// stray returns a call that matches no operation.
func (w *walker) stray() call {
	c := call{op: w.otherwise[http.StatusNotFound], header: make(http.Header)}
	w.authenticate(&c)
	c.method = pick(w.generator, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"})
	c.path = pick(w.generator, []string{"/", "/v2", "/v2/", "/v1/api-keys", "/v2/api-keys/", "/v2//api-keys", "/v2/api-keys/a/b", "/v2/API-KEYS", "/v2/api-keys%2f", "/v2/./api-keys", "/v2/%25", "/v2/environments", "/v2/notifications"})
	if w.chance(50) {
		op := pick(w.generator, w.operations)
		c.path, _ = op.path("key_1", "a", "b")
		c.op, c.method = w.otherwise[http.StatusMethodNotAllowed], pick(w.generator, []string{"PUT", "OPTIONS", "TRACE", "FOO", "CONNECTED"})
	}
	return c
}
