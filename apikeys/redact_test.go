package apikeys_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

// exposed returns the encodings in which text contains the token or its hash.
func exposed(text string, token apikeys.Token) []string {
	secret := token.Reveal()
	sum := token.Hash().Sum
	spellings := []string{secret, secret[4:], fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprint([]byte(secret))[:40]}
	for _, verb := range []string{"%v", "%#v", "%x", "%X", "%q", "%o", "%b", "%s"} {
		whole := strings.Trim(fmt.Sprintf(verb, sum[:]), "[]")
		spellings = append(spellings, whole[:min(len(whole), 24)])
	}
	spellings = append(spellings, base64.StdEncoding.EncodeToString(sum[:])[:20], fmt.Sprintf("0x%02x, 0x%02x, 0x%02x", sum[0], sum[1], sum[2]))
	var found []string
	for _, s := range spellings {
		if strings.Contains(text, s) {
			found = append(found, s)
		}
	}
	return found
}

// Tokens and hashes are hidden in all output except the result of Reveal.
func TestTokensAndHashesAreRedacted(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{})
	key, _ := create(t, service, time.Time{})
	key, token := rotate(t, service, key.ID, time.Hour)
	hash := token.Hash()
	type holder struct {
		Token apikeys.Token
		Hash  driver.Hash
		Any   any
	}
	values := map[string]any{
		"token": token, "pointer to token": &token, "hash": hash, "pointer to hash": &hash, "key": key, "pointer to key": &key,
		"struct": holder{token, hash, key}, "pointer to struct": &holder{token, hash, &token},
		"slice": []any{token, hash}, "tokens": []apikeys.Token{token}, "hashes": []driver.Hash{hash},
		"map": map[string]any{"token": token, "hash": hash}, "map by hash": map[driver.Hash]string{hash: "x"},
		"reflected": []any{reflect.ValueOf(token), reflect.ValueOf(hash)},
		"error":     fmt.Errorf("failed with %v and %v: %w", token, hash, errors.New("cause")),
	}
	for what, value := range values {
		for how, text := range prints(t, value) {
			if found := exposed(text, token); found != nil {
				t.Errorf("%s as %s shows %q:\n%s", what, how, found, text)
			}
		}
	}
	for how, text := range prints(t, token) {
		if strings.HasPrefix(how, "%") && how != "%T" && text != "[redacted]" {
			t.Errorf("token as %s is %q", how, text)
		}
	}
}

// prints returns a value in every common textual form.
func prints(t *testing.T, value any) map[string]string {
	t.Helper()
	shown := make(map[string]string)
	for _, verb := range []string{
		"%v", "%+v", "%#v", "%s", "%+s", "%q", "%#q", "%x", "%X", "% x", "%#x", "%d", "%c", "%U", "%o", "%b", "%e", "%t", "%60v", "%.3s", "%T",
	} {
		shown[verb] = fmt.Sprintf(verb, value)
	}
	shown["Sprint"] = fmt.Sprint(value)

	var buf bytes.Buffer
	show := func(how string, err error) {
		if err != nil {
			fmt.Fprintln(&buf, err)
		}
		shown[how] = buf.String()
		buf.Reset()
	}
	show("JSON", json.NewEncoder(&buf).Encode(value))
	show("XML", xml.NewEncoder(&buf).Encode(value))
	show("a template", template.Must(template.New("").Parse("{{.}} {{printf `%+v` .}} {{js .}}")).Execute(&buf, value))
	log.New(&buf, "", 0).Println(value)
	show("log", nil)
	slog.New(slog.NewTextHandler(&buf, nil)).Info("x", "value", value, slog.Group("group", "value", value))
	show("slog text", nil)
	slog.New(slog.NewJSONHandler(&buf, nil)).Info("x", "value", value, slog.Group("group", "value", value))
	show("slog JSON", nil)
	return shown
}

// fmt does not call the methods of values in unexported fields. It must not print tokens in such
// fields either.
func TestTokensAreRedactedInUnexportedFields(t *testing.T) {
	_, token := create(t, newService(t, memory.New(), apikeys.Config{}), time.Time{})
	type hidden struct {
		token   apikeys.Token
		pointer *apikeys.Token
		list    []apikeys.Token
		byName  map[string]apikeys.Token
	}
	value := hidden{token, &token, []apikeys.Token{token}, map[string]apikeys.Token{"x": token}}
	for how, text := range prints(t, value) {
		if found := exposed(text, token); found != nil {
			t.Errorf("as %s it shows %q:\n%s", how, found, text)
		}
	}
}

// Neither diffs of a failing test nor encoders show tokens.
func TestTokensAreRedactedInDiffs(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{})
	_, token := create(t, service, time.Time{})
	_, other := create(t, service, time.Time{})
	bySecret := cmp.Comparer(func(a, b apikeys.Token) bool { return a.Reveal() == b.Reveal() })
	for _, diff := range []string{
		cmp.Diff(token, other, bySecret), cmp.Diff([]apikeys.Token{token}, nil), cmp.Diff([]apikeys.Token{token}, []apikeys.Token{other}, bySecret),
		cmp.Diff(map[string]any{"token": token}, map[string]any{"token": other}, bySecret), cmp.Diff(any(token), any("x")),
		cmp.Diff(map[string]apikeys.Token{"x": token}, nil), cmp.Diff(&token, &other, bySecret),
	} {
		if found := exposed(diff, token); diff == "" || found != nil {
			t.Errorf("it shows %q:\n%s", found, diff)
		}
	}
}

func TestTokensCannotBeSerialized(t *testing.T) {
	_, token := create(t, newService(t, memory.New(), apikeys.Config{}), time.Time{})
	var buf bytes.Buffer
	err := gob.NewEncoder(&buf).Encode(struct{ Token apikeys.Token }{token})
	if found := exposed(buf.String()+fmt.Sprint(err), token); found != nil {
		t.Errorf("gob shows %q", found)
	}
}
