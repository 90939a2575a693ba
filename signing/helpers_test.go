package signing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

var (
	secretA = secretOf('a')
	secretB = secretOf('b')
	signed  = time.Unix(1772366400, 0)
)

// secretOf returns the secret whose 32 bytes are all c.
func secretOf(c byte) signing.Secret {
	key := bytes.Repeat([]byte{c}, 32)
	secret, err := signing.ParseSecret("whsec_" + base64.StdEncoding.EncodeToString(key))
	if err != nil {
		panic(err)
	}
	return secret
}

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

func newSigner(tb testing.TB, secrets ...signing.Secret) *signing.Signer {
	tb.Helper()
	signer, err := signing.NewSigner("", secrets...)
	if err != nil {
		tb.Fatal(err)
	}
	return signer
}

func newVerifier(tb testing.TB, config signing.VerifierConfig) *signing.Verifier {
	tb.Helper()
	verifier, err := signing.NewVerifier(config)
	if err != nil {
		tb.Fatal(err)
	}
	return verifier
}

// header signs body with the secrets, as message evt_1 at the given time, and returns the headers.
func header(tb testing.TB, when time.Time, body string, secrets ...signing.Secret) http.Header {
	tb.Helper()
	h := http.Header{}
	newSigner(tb, secrets...).Sign(h, "evt_1", when, []byte(body))
	return h
}

// vectors is the content of testdata/vectors.json; see the README.md next to it.
type vectors struct {
	ToleranceSeconds int64
	Sign             []struct {
		Name      string
		Secrets   []string
		ID        string
		Timestamp int64
		Body      string
		Headers   map[string]string
	}
	Verify []struct {
		Name     string
		Secrets  []string
		Headers  map[string]string
		Body     string
		Now      int64
		Service  bool
		Standard bool
		Error    *string
	}
}

func readVectors(tb testing.TB) vectors {
	tb.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		tb.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		tb.Fatal(err)
	}
	if len(v.Sign) == 0 || len(v.Verify) == 0 {
		tb.Fatal("no vectors")
	}
	return v
}

func parseSecrets(tb testing.TB, texts []string) []signing.Secret {
	tb.Helper()
	var secrets []signing.Secret
	for _, text := range texts {
		secret, err := signing.ParseSecret(text)
		if err != nil {
			tb.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	return secrets
}

func headerOf(fields map[string]string) http.Header {
	h := http.Header{}
	for name, value := range fields {
		h.Set(name, value)
	}
	return h
}
