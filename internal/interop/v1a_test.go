package interop

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A keyedRequest is a request for the receiver of docs/receivers.md that knows only public keys.
type keyedRequest struct {
	Headers map[string]string `json:"headers"` // with lower-case names, as Node.js has them
	Body    string            `json:"body"`

	name    string
	genuine bool
}

// keyed returns a request at the given time, signed with all secrets.
func keyed(t *testing.T, name string, genuine bool, at time.Time, body string, secrets ...signing.Secret) keyedRequest {
	t.Helper()
	signer, err := signing.NewSigner("", secrets...)
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = signer.With(signing.V1, signing.V1a); err != nil {
		t.Fatal(err)
	}
	h := make(http.Header)
	signer.Sign(h, "evt_1", at, []byte(body))
	r := keyedRequest{Headers: make(map[string]string), Body: body, name: name, genuine: genuine}
	for header := range h {
		r.Headers[strings.ToLower(header)] = h.Get(header)
	}
	return r
}

func (r keyedRequest) with(header, value string) keyedRequest {
	r.Headers = maps.Clone(r.Headers)
	r.Headers[header] = value
	return r
}

// keyedRequests returns requests to a webhook with the two secrets.
func keyedRequests(t *testing.T, current, previous signing.Secret) []keyedRequest {
	t.Helper()
	now, other := time.Now(), signing.NewSecret()
	good := keyed(t, "genuine", true, now, `{"name":"Zürich 東京"}`, current)
	public, err := signing.ParseSecret("whsec_" + strings.TrimPrefix(current.PublicKey().String(), "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	hmac, _, _ := strings.Cut(keyed(t, "", false, now, good.Body, public).Headers["webhook-signature"], " ")
	list := []keyedRequest{
		good,
		keyed(t, "empty body", true, now, "", current),
		keyed(t, "signed by the previous key", true, now, "{}", previous),
		keyed(t, "signed by both", true, now, "{}", current, previous),
		keyed(t, "signed by another key, too", true, now, "{}", other, current),
		keyed(t, "signed by another key", false, now, "{}", other),
		keyed(t, "old", false, now.Add(-6*time.Minute), "{}", current),
		keyed(t, "future", false, now.Add(6*time.Minute), "{}", current),
	}
	for name, bad := range map[string]keyedRequest{
		"another ID":                    good.with("webhook-id", "evt_2"),
		"another time":                  good.with("webhook-timestamp", strconv.FormatInt(now.Unix()+1, 10)),
		"no time":                       good.with("webhook-timestamp", ""),
		"time that is no number":        good.with("webhook-timestamp", "now"),
		"no signature":                  good.with("webhook-signature", ""),
		"HMAC with the public key":      good.with("webhook-signature", hmac),
		"the same, named v1a":           good.with("webhook-signature", strings.Replace(hmac, "v1,", "v1a,", 1)),
		"half a signature":              good.with("webhook-signature", "v1a,"+base64.StdEncoding.EncodeToString(make([]byte, 32))),
		"a signature that is not of it": good.with("webhook-signature", "v1a,"+base64.StdEncoding.EncodeToString(make([]byte, 64))),
	} {
		bad.name, bad.genuine = name, false
		list = append(list, bad)
	}
	changed := good
	changed.name, changed.genuine, changed.Body = "another body", false, good.Body+" "
	return append(list, changed)
}

// For each request, package signing, jose, and the receiver of docs/receivers.md that knows only
// the address of a JWKS must agree.
func TestPublicKeyReceiver_OfTheDocs_AcceptsGenuineRequestsOnly(t *testing.T) {
	current, previous := signing.NewSecret(), signing.NewSecret()
	keys := []signing.PublicKey{current.PublicKey(), previous.PublicKey()}
	served := 0
	set := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served++
		_, _ = w.Write(signing.JWKS(keys...))
	}))
	defer set.Close()
	list := keyedRequests(t, current, previous)

	verifier, err := signing.NewVerifier(signing.VerifierConfig{PublicKeys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		h := make(http.Header)
		for name, value := range r.Headers {
			h.Set(name, value)
		}
		if err := verifier.Verify(h, []byte(r.Body)); (err == nil) != r.genuine {
			t.Errorf("%s: Verify = %v, want genuine: %v", r.name, err, r.genuine)
		}
	}

	receiver := filepath.Join(t.TempDir(), "receiver.mjs")
	if err := os.WriteFile(receiver, []byte(example(t, "js", "createPublicKey")), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), installed(t, "node", []string{"--input-type=module", "-e", "import 'jose'"}), "verify-v1a.mjs")
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	command.Env = append(os.Environ(), "WEBHOOK_JWKS="+set.URL, "RECEIVER="+receiver)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Docs        []bool   // the verdict of the receiver for each request
		Jose        []bool   // the verdict of a key that jose imported
		Thumbprints []string // computed by jose
	}
	if err := json.Unmarshal(output, &got); err != nil || len(got.Docs) != len(list) || len(got.Jose) != len(list) || len(got.Thumbprints) != len(keys) {
		t.Fatalf("%v in %s", err, output)
	}
	for i, r := range list {
		if got.Docs[i] != r.genuine {
			t.Errorf("%s: the receiver accepts: %v, want %v", r.name, got.Docs[i], r.genuine)
		}
		late := r.name == "old" || r.name == "future" // jose verifies only the signature
		if got.Jose[i] != (r.genuine || late) {
			t.Errorf("%s: jose accepts: %v, want %v", r.name, got.Jose[i], r.genuine || late)
		}
	}
	for i, key := range keys {
		if got.Thumbprints[i] != key.ID() {
			t.Errorf("key %d has the thumbprint %s, want its ID %s", i, got.Thumbprints[i], key.ID())
		}
	}
	if served != 2 { // once by the receiver, which caches the keys, and once by the test program
		t.Errorf("the JWKS was fetched %d times, want 2", served)
	}
}
