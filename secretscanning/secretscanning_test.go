package secretscanning_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/secretscanning"
	"github.com/storageapi/storageapi/store/memory"
)

const account = "acct_1"

// The key and the signed body that GitHub's documentation gives for tests.
const (
	githubID  = "f9525bf080f75b3506ca1ead061add62b8633a346606dc5fe544e29231c6ee0d"
	githubPEM = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEsz9ugWDj5jK5ELBK42ynytbo38gP\n" +
		"HzZFI03Exwz8Lh/tCfL3YxwMdLjB+bMznsanlhK0RwcGP3IDb34kQDIo3Q==\n-----END PUBLIC KEY-----\n"
	githubBody      = `[{"token":"some_token","type":"some_type","url":"some_url","source":"some_source"}]`
	githubSignature = "MEUCIFLZzeK++IhS+y276SRk2Pe5LfDrfvTXu6iwKKcFGCrvAiEAhHN2kDOhy2I6eGkOFmxNkOJ+L2y8oQ9A2T9GGJo6WJY="
)

// A github sends signed reports to a handler.
type github struct {
	testing.TB
	keys    *apikeys.KeyService
	handler http.Handler
	private *ecdsa.PrivateKey
	leaks   []secretscanning.Leak
}

func newGithub(t testing.TB, config secretscanning.Config, wrap func(secretscanning.Keys) secretscanning.Keys) *github {
	t.Helper()
	g := &github{TB: t}
	var err error
	if g.keys, err = apikeys.New(memory.New(), apikeys.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.keys.Close)
	if g.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if config.PublicKey == nil {
		config.PublicKey = func(_ context.Context, id string) (*ecdsa.PublicKey, error) {
			if id != "current" {
				return nil, nil
			}
			return &g.private.PublicKey, nil
		}
	}
	config.Found = func(_ context.Context, leak secretscanning.Leak) { g.leaks = append(g.leaks, leak) }
	var keys secretscanning.Keys = g.keys
	if wrap != nil {
		keys = wrap(keys)
	}
	if g.handler, err = secretscanning.New(keys, config); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *github) create(name string) string {
	g.Helper()
	_, token, err := g.keys.Create(g.Context(), account, apikeys.CreateParams{Name: name, Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		g.Fatal(err)
	}
	return token.Reveal()
}

func (g *github) sign(body []byte) string {
	digest := sha256.Sum256(body)
	signature, err := ecdsa.SignASN1(rand.Reader, g.private, digest[:])
	if err != nil {
		g.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

func (g *github) post(body, id, signature string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/leaks", strings.NewReader(body))
	r.Header.Set("Github-Public-Key-Identifier", id)
	r.Header.Set("Github-Public-Key-Signature", signature)
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	return w
}

// report sends a signed report with the tokens and returns the status and the labels in the
// response.
func (g *github) report(tokens ...string) (int, []string) {
	g.Helper()
	matches := []map[string]string{}
	for _, token := range tokens {
		matches = append(matches, map[string]string{"token": token, "type": "storage_key", "url": "https://example.com/code", "source": "commit"})
	}
	body, err := json.Marshal(matches)
	if err != nil {
		g.Fatal(err)
	}
	w := g.post(string(body), "current", g.sign(body))
	if w.Code != 200 {
		return w.Code, nil
	}
	var labels []struct {
		Hash  string `json:"token_hash"`
		Type  string `json:"token_type"`
		Label string `json:"label"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &labels); err != nil {
		g.Fatalf("answer %q: %v", w.Body, err)
	}
	byHash := map[string]string{}
	for _, token := range tokens {
		sum := sha256.Sum256([]byte(token))
		byHash[hex.EncodeToString(sum[:])] = token
		if strings.Contains(w.Body.String(), token) {
			g.Error("the answer contains a value")
		}
	}
	var list []string
	for _, l := range labels {
		list = append(list, byHash[l.Hash]+" "+l.Type+" "+l.Label)
	}
	return w.Code, list
}

func (g *github) wantLive(token string, want bool) {
	g.Helper()
	if _, err := g.keys.Verify(g.Context(), token); (err == nil) != want {
		g.Errorf("Verify: %v, want live %v", err, want)
	}
}

func TestHandler_GitHubsExample_IsAccepted(t *testing.T) {
	keys, err := secretscanning.ParsePublicKeys([]byte(`{"public_keys":[{"key_identifier":"` + githubID + `","key":` +
		string(must(json.Marshal(githubPEM))) + `,"is_current":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	g := newGithub(t, secretscanning.Config{PublicKey: func(_ context.Context, id string) (*ecdsa.PublicKey, error) {
		return keys[id], nil
	}}, nil)
	w := g.post(githubBody, githubID, githubSignature)
	sum := sha256.Sum256([]byte("some_token"))
	want := `[{"token_hash":"` + hex.EncodeToString(sum[:]) + `","token_type":"some_type","label":"false_positive"}]` + "\n"
	if w.Code != 200 || w.Body.String() != want {
		t.Errorf("got %d %s, want 200 %s", w.Code, w.Body, want)
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

func TestHandler_Revoke_RevokesOnlyLeakedValues(t *testing.T) {
	g := newGithub(t, secretscanning.Config{Revoke: true}, nil)
	leaked, other := g.create("leaked"), g.create("other")
	status, labels := g.report(leaked, "no key", leaked)
	want := []string{leaked + " storage_key true_positive", "no key storage_key false_positive"}
	if diff := cmp.Diff(want, labels); status != 200 || diff != "" {
		t.Errorf("status %d, labels (-want +got):\n%s", status, diff)
	}
	g.wantLive(leaked, false)
	g.wantLive(other, true)
	if len(g.leaks) != 1 || g.leaks[0].Value.Key.Name != "leaked" || g.leaks[0].Err != nil ||
		g.leaks[0].URL != "https://example.com/code" || g.leaks[0].Source != "commit" || g.leaks[0].Type != "storage_key" {
		t.Errorf("found %+v, want the leaked key once", g.leaks)
	}
}

func TestHandler_WithoutRevoke_OnlyReports(t *testing.T) {
	g := newGithub(t, secretscanning.Config{}, nil)
	leaked := g.create("leaked")
	if status, labels := g.report(leaked); status != 200 || len(labels) != 1 {
		t.Errorf("got %d %v", status, labels)
	}
	g.wantLive(leaked, true)
	if len(g.leaks) != 1 {
		t.Errorf("found %+v, want one", g.leaks)
	}
}

func TestHandler_InvalidRequest_HasNoEffect(t *testing.T) {
	g := newGithub(t, secretscanning.Config{Revoke: true}, nil)
	leaked := g.create("leaked")
	body := `[{"token":"` + leaked + `","type":"t"}]`
	good := g.sign([]byte(body))
	stranger := newGithub(t, secretscanning.Config{}, nil)
	huge := strings.Repeat(" ", 5<<20)
	for _, test := range []struct {
		name, body, id, signature string
		want                      int
	}{
		{"no headers", body, "", "", 401},
		{"unknown key", body, "old", good, 401},
		{"no signature", body, "current", "", 401},
		{"not base64", body, "current", "?", 401},
		{"signed by another key", body, "current", stranger.sign([]byte(body)), 401},
		{"changed body", body + " ", "current", good, 401},
		{"not a list", "{}", "current", g.sign([]byte("{}")), 400},
		{"too large", huge, "current", g.sign([]byte(huge)), 413},
	} {
		if w := g.post(test.body, test.id, test.signature); w.Code != test.want || strings.Contains(w.Body.String(), leaked) {
			t.Errorf("%s: got %d %s, want %d", test.name, w.Code, w.Body, test.want)
		}
	}
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, httptest.NewRequest("GET", "/leaks", nil))
	if w.Code != 405 {
		t.Errorf("GET: got %d, want 405", w.Code)
	}
	g.wantLive(leaked, true)
	if len(g.leaks) != 0 {
		t.Errorf("found %+v, want none", g.leaks)
	}
}

// failing wraps Keys. Lookup fails for the token lookup, and RevokeValue for the token revoke.
type failing struct {
	secretscanning.Keys
	lookup, revoke string
}

var errStore = errors.New("disk failed")

func (f failing) Lookup(ctx context.Context, token string) (apikeys.Value, error) {
	if token == f.lookup {
		return apikeys.Value{}, errStore
	}
	return f.Keys.Lookup(ctx, token)
}

func (f failing) RevokeValue(ctx context.Context, token string) (apikeys.Value, error) {
	if token == f.revoke {
		return apikeys.Value{}, errStore
	}
	return f.Keys.RevokeValue(ctx, token)
}

func TestHandler_StoreFails_HandlesOtherMatchesAndAnswers503(t *testing.T) {
	var faults failing
	g := newGithub(t, secretscanning.Config{Revoke: true}, func(keys secretscanning.Keys) secretscanning.Keys {
		faults.Keys = keys
		return &faults
	})
	unreadable, unrevoked, leaked := g.create("unreadable"), g.create("unrevoked"), g.create("leaked")
	faults.lookup, faults.revoke = unreadable, unrevoked
	if status, _ := g.report(unreadable, unrevoked, leaked); status != 503 {
		t.Errorf("got %d, want 503", status)
	}
	g.wantLive(unreadable, true)
	g.wantLive(unrevoked, true)
	g.wantLive(leaked, false)
	if len(g.leaks) != 2 || !errors.Is(g.leaks[0].Err, errStore) || g.leaks[1].Err != nil {
		t.Errorf("found %+v, want unrevoked with its error, and leaked", g.leaks)
	}
	faults.lookup, faults.revoke = "", ""
	if status, labels := g.report(unreadable, unrevoked, leaked); status != 200 || len(labels) != 3 {
		t.Errorf("sent again: got %d %v, want 200 and three labels", status, labels)
	}
	g.wantLive(unreadable, false)
	g.wantLive(unrevoked, false)
}

func TestHandler_PublicKeyUnavailable_Answers503(t *testing.T) {
	g := newGithub(t, secretscanning.Config{PublicKey: func(context.Context, string) (*ecdsa.PublicKey, error) {
		return nil, errStore
	}}, nil)
	if status, _ := g.report("x"); status != 503 {
		t.Errorf("got %d, want 503", status)
	}
}

func TestNew_InvalidConfig_ReturnsError(t *testing.T) {
	g := newGithub(t, secretscanning.Config{}, nil)
	lookUp := func(context.Context, string) (*ecdsa.PublicKey, error) { return nil, nil }
	for _, test := range []struct {
		keys   secretscanning.Keys
		config secretscanning.Config
		want   string
	}{
		{nil, secretscanning.Config{PublicKey: lookUp, Revoke: true}, "keys must not be nil"},
		{g.keys, secretscanning.Config{Revoke: true}, "Config.PublicKey must not be nil"},
		{g.keys, secretscanning.Config{PublicKey: lookUp}, "set Config.Revoke, Config.Found or both"},
	} {
		if _, err := secretscanning.New(test.keys, test.config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

func TestParsePublicKeys_InvalidList_ReturnsError(t *testing.T) {
	for body, want := range map[string]string{
		"":                   "unexpected end",
		`{"public_keys":[]}`: "is empty",
		`{"public_keys":[{"key_identifier":"a","key":"x"}]}`:                                                            "not PEM",
		`{"public_keys":[{"key_identifier":"a","key":"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}]}`: `public key "a"`,
	} {
		if _, err := secretscanning.ParsePublicKeys([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePublicKeys(%s) returns %v, want %q", body, err, want)
		}
	}
}

// FuzzHandler sends signed bodies with arbitrary content. The handler must answer each of them, and
// must neither report a leak nor change a key.
func FuzzHandler(f *testing.F) {
	f.Add([]byte(githubBody))
	f.Add([]byte(`[{"token":1},null]`))
	g := newGithub(f, secretscanning.Config{Revoke: true}, nil)
	token := g.create("a key")
	f.Fuzz(func(t *testing.T, body []byte) {
		w := g.post(string(body), "current", g.sign(body))
		if w.Code != 200 && w.Code != 400 && w.Code != 413 || bytes.Contains(body, []byte(token)) != (len(g.leaks) > 0) {
			t.Errorf("body %q: got %d, leaks %+v", body, w.Code, g.leaks)
		}
	})
}

func FuzzParsePublicKeys(f *testing.F) {
	g := newGithub(f, secretscanning.Config{}, nil)
	der := must(x509.MarshalPKIXPublicKey(&g.private.PublicKey))
	text := must(json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))))
	f.Add([]byte(`{"public_keys":[{"key_identifier":"a","key":` + string(text) + `}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, err := secretscanning.ParsePublicKeys(body)
		if (err == nil) != (len(keys) > 0) {
			t.Errorf("got %d keys, %v", len(keys), err)
		}
	})
}

func TestHandler_RequestEnded_StillRevokes(t *testing.T) {
	g := newGithub(t, secretscanning.Config{Revoke: true}, nil)
	leaked := g.create("leaked")
	body := []byte(`[{"token":"` + leaked + `"}]`)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", "/leaks", bytes.NewReader(body))
	r.Header.Set("Github-Public-Key-Identifier", "current")
	r.Header.Set("Github-Public-Key-Signature", g.sign(body))
	g.handler.ServeHTTP(httptest.NewRecorder(), r)
	g.wantLive(leaked, false)
}
