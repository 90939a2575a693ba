package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// message is a received message, with the expected result for each of its two signatures. It is a
// test vector from signing/testdata, or was signed by the test.
type message struct {
	Name     string            `json:"name"`
	Secrets  []string          `json:"secrets"` // the receiver's secrets
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
	Now      int64             `json:"now"`
	Service  bool              `json:"service"`
	Standard bool              `json:"standard"`
}

func (m message) header() http.Header {
	h := http.Header{}
	for name, value := range m.Headers {
		h.Set(name, value)
	}
	return h
}

// messages returns the vectors, and newly signed messages, both intact and modified.
func messages(t *testing.T) []message {
	t.Helper()
	data, err := os.ReadFile("../../signing/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct{ Verify []message }
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Verify) == 0 {
		t.Fatal("no vectors")
	}
	return slices.Concat(vectors.Verify, fresh(t))
}

func fresh(t *testing.T) []message {
	t.Helper()
	now := time.Now()
	old, current := signing.NewSecret(), signing.NewSecret()
	signer, err := signing.NewSigner("", current, old)
	if err != nil {
		t.Fatal(err)
	}
	var all []message
	for i, body := range []string{`{}`, `{"a":"\u0000 ünï \" 🚀"}`, `{"pad":"` + string(make60K()) + `"}`, `[1, 2,  3]`} {
		id := fmt.Sprintf("evt_%d", i)
		if i == 1 { // the libraries must skip v1a signatures
			if signer, err = signer.With(signing.V1, signing.V1a); err != nil {
				t.Fatal(err)
			}
		}
		h := http.Header{}
		signer.Sign(h, id, now, []byte(body))
		headers := map[string]string{}
		for name := range h {
			headers[name] = h.Get(name)
		}
		with := func(name, value string) map[string]string {
			changed := maps.Clone(headers)
			changed[name] = value
			return changed
		}
		add := func(name string, secret signing.Secret, headers map[string]string, body string, service, standard bool) {
			all = append(all, message{
				fmt.Sprintf("fresh %d: %s", i, name), []string{secret.Reveal()}, headers, body, now.Unix(), service, standard,
			})
		}
		add("intact, current secret", current, headers, body, true, true)
		add("intact, old secret", old, headers, body, true, true)
		add("wrong secret", signing.NewSecret(), headers, body, false, false)
		add("body", current, headers, body[:len(body)-1]+" "+body[len(body)-1:], false, false)
		add("id", current, with(signing.HeaderID, "evt_other"), body, true, false)
		add("timestamp", current, with(signing.HeaderTimestamp, fmt.Sprint(now.Unix()+1)), body, true, false)
	}
	return all
}

func make60K() []byte {
	pad := make([]byte, 60<<10)
	for i := range pad {
		pad[i] = 'a' + byte(i%26)
	}
	return pad
}

// accepts checks that our Verifier accepts a message whose Standard Webhooks signature was made by
// another implementation. The Verifier requires both signatures, so accepts adds the other one.
func accepts(t *testing.T, secret signing.Secret, id string, at time.Time, signature string, body []byte) {
	t.Helper()
	verifier, err := signing.NewVerifier(signing.VerifierConfig{
		Secrets: []signing.Secret{secret}, Now: func() time.Time { return at },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
	h.Set("webhook-signature", signature)
	h.Set(signing.DefaultHeader, signing.Signature(secret, body))
	if err := verifier.Verify(h, body); err != nil {
		t.Errorf("what they sign: %v", err)
	}
	if err := verifier.Verify(h, append(slices.Clone(body), ' ')); err == nil {
		t.Error("what they sign, tampered with: accepted")
	}
}
