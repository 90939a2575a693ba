package signing_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

var signedAt = time.Unix(1_700_000_000, 0)

func signedWith(t testing.TB, body string, schemes []signing.Scheme, secrets ...signing.Secret) http.Header {
	t.Helper()
	signer, err := signing.NewSigner("", secrets...)
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = signer.With(schemes...); err != nil {
		t.Fatal(err)
	}
	h := http.Header{"X-Service-Signature": {"old"}}
	signer.Sign(h, "evt_1", signedAt, []byte(body))
	return h
}

func verifierOf(t testing.TB, config signing.VerifierConfig) *signing.Verifier {
	t.Helper()
	config.Now = func() time.Time { return signedAt }
	v, err := signing.NewVerifier(config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// crypto/ed25519 verifies the signature over the bytes that Standard Webhooks names, with the key
// in the JWKS.
func TestV1a_SignsIDTimestampAndBody(t *testing.T) {
	secret := signing.NewSecret()
	h := signedWith(t, "body", []signing.Scheme{signing.V1a}, secret)
	var set struct {
		Keys []struct{ Kty, Crv, Alg, Use, Kid, X string }
	}
	if err := json.Unmarshal(signing.JWKS(secret.PublicKey()), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("%v, %d keys", err, len(set.Keys))
	}
	key := set.Keys[0]
	if key.Kty != "OKP" || key.Crv != "Ed25519" || key.Alg != "EdDSA" || key.Use != "sig" || key.Kid != secret.PublicKey().ID() {
		t.Errorf("%+v", key)
	}
	x, err := base64.RawURLEncoding.DecodeString(key.X)
	if err != nil {
		t.Fatal(err)
	}
	text, ok := strings.CutPrefix(h.Get("Webhook-Signature"), "v1a,")
	signature, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || !ed25519.Verify(x, []byte("evt_1.1700000000.body"), signature) {
		t.Errorf("Webhook-Signature %q is no signature of ID, timestamp and body", h.Get("Webhook-Signature"))
	}
	if got := h.Values("X-Service-Signature"); len(got) > 0 {
		t.Errorf("X-Service-Signature: %q, want none without v1", got)
	}
}

// The thumbprint of RFC 8037, appendix A.3.
func TestPublicKey_ID_IsThumbprint(t *testing.T) {
	x, _ := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	key, err := signing.ParsePublicKey("whpk_" + base64.StdEncoding.EncodeToString(x))
	if err != nil || key.ID() != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("ID = %s, %v", key.ID(), err)
	}
}

func TestVerify_V1a(t *testing.T) {
	both, only := []signing.Scheme{signing.V1, signing.V1a}, []signing.Scheme{signing.V1a}
	a, b := signing.NewSecret(), signing.NewSecret()
	// An attacker who has only the public key signs with it as if it were a secret.
	publicAsSecret, err := signing.ParseSecret("whsec_" + strings.TrimPrefix(a.PublicKey().String(), "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	forged := signedWith(t, "x", []signing.Scheme{signing.V1}, publicAsSecret)
	renamed := forged.Clone()
	renamed.Set("Webhook-Signature", strings.Replace(forged.Get("Webhook-Signature"), "v1,", "v1a,", 1))
	asV1 := signedWith(t, "x", both, a)
	asV1.Set("Webhook-Signature", strings.Replace(signedWith(t, "x", only, a).Get("Webhook-Signature"), "v1a,", "v1,", 1))
	late := signedWith(t, "x", only, a)
	late.Set("Webhook-Timestamp", "1700000001")
	keys := func(secrets ...signing.Secret) (list []signing.PublicKey) {
		for _, s := range secrets {
			list = append(list, s.PublicKey())
		}
		return list
	}
	for name, test := range map[string]struct {
		header http.Header
		config signing.VerifierConfig
		body   string
		ok     bool
	}{
		"only v1a":                      {signedWith(t, "x", only, a), signing.VerifierConfig{PublicKeys: keys(a)}, "x", true},
		"beside v1":                     {signedWith(t, "x", both, a), signing.VerifierConfig{PublicKeys: keys(a)}, "x", true},
		"beside v1, by the secret":      {signedWith(t, "x", both, a), signing.VerifierConfig{Secrets: []signing.Secret{a}}, "x", true},
		"rotation, old key":             {signedWith(t, "x", both, b, a), signing.VerifierConfig{PublicKeys: keys(a)}, "x", true},
		"rotation, both keys":           {signedWith(t, "x", only, b), signing.VerifierConfig{PublicKeys: keys(a, b)}, "x", true},
		"either scheme":                 {signedWith(t, "x", only, a), signing.VerifierConfig{PublicKeys: keys(a), Secrets: []signing.Secret{b}}, "x", true},
		"only v1, with the key":         {signedWith(t, "x", []signing.Scheme{signing.V1}, a), signing.VerifierConfig{PublicKeys: keys(a)}, "x", false},
		"only v1a, with the secret":     {signedWith(t, "x", only, a), signing.VerifierConfig{Secrets: []signing.Secret{a}}, "x", false},
		"another body":                  {signedWith(t, "x", both, a), signing.VerifierConfig{PublicKeys: keys(a)}, "y", false},
		"another key":                   {signedWith(t, "x", both, a), signing.VerifierConfig{PublicKeys: keys(b)}, "x", false},
		"another key and wrong secret":  {signedWith(t, "x", both, a), signing.VerifierConfig{PublicKeys: keys(b), Secrets: []signing.Secret{b}}, "x", false},
		"HMAC with the public key":      {forged, signing.VerifierConfig{PublicKeys: keys(a)}, "x", false},
		"the same, named v1a":           {renamed, signing.VerifierConfig{PublicKeys: keys(a), Secrets: []signing.Secret{a}}, "x", false},
		"v1a named v1":                  {asV1, signing.VerifierConfig{PublicKeys: keys(a), Secrets: []signing.Secret{a}}, "x", false},
		"another timestamp":             {late, signing.VerifierConfig{PublicKeys: keys(a)}, "x", false},
		"no signature of the body, v1a": {http.Header{"Webhook-Id": {"evt_1"}, "Webhook-Timestamp": {"1700000000"}, "Webhook-Signature": {""}}, signing.VerifierConfig{PublicKeys: keys(a), Secrets: []signing.Secret{a}}, "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := verifierOf(t, test.config).Verify(test.header, []byte(test.body)); (err == nil) != test.ok || err != nil && !errors.Is(err, signing.ErrSignature) {
				t.Errorf("Verify = %v, want success: %v", err, test.ok)
			}
		})
	}
}

// A receiver that has only the public key refuses replays as well.
func TestVerify_V1a_Replayed_ReturnsErrTimestamp(t *testing.T) {
	secret := signing.NewSecret()
	for _, late := range []time.Duration{6 * time.Minute, -6 * time.Minute} {
		v, err := signing.NewVerifier(signing.VerifierConfig{PublicKeys: []signing.PublicKey{secret.PublicKey()}, Now: func() time.Time { return signedAt.Add(late) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Verify(signedWith(t, "x", []signing.Scheme{signing.V1a}, secret), []byte("x")); !errors.Is(err, signing.ErrTimestamp) {
			t.Errorf("after %v: Verify = %v, want ErrTimestamp", late, err)
		}
	}
}

func TestVerify_V1a_AnyCharacterChanged_ReturnsErrSignature(t *testing.T) {
	secret := signing.NewSecret()
	v := verifierOf(t, signing.VerifierConfig{PublicKeys: []signing.PublicKey{secret.PublicKey()}})
	h := signedWith(t, "body", []signing.Scheme{signing.V1a}, secret)
	good := h.Get("Webhook-Signature")
	for i := range good {
		h.Set("Webhook-Signature", good[:i]+string(good[i]^1)+good[i+1:])
		if err := v.Verify(h, []byte("body")); err == nil {
			t.Errorf("accepted %q with character %d changed", good, i)
		}
	}
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))
	h.Set("Webhook-Signature", good)
	request.Header = h
	response := httptest.NewRecorder()
	v.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(response, request)
	if response.Code != http.StatusOK {
		t.Errorf("the handler answered %d", response.Code)
	}
}

func TestPublicKeys_AreNotTakenForSecrets(t *testing.T) {
	secret := signing.NewSecret()
	if _, err := signing.ParseSecret(secret.PublicKey().String()); !errors.Is(err, signing.ErrSecret) {
		t.Errorf("ParseSecret of a public key = %v, want ErrSecret", err)
	}
	_, err := signing.ParsePublicKey(secret.Reveal())
	if !errors.Is(err, signing.ErrPublicKey) || strings.Contains(err.Error(), secret.Reveal()[6:]) {
		t.Errorf("ParsePublicKey of a secret = %v, want ErrPublicKey without the secret", err)
	}
	key := secret.PublicKey()
	for _, keys := range [][]signing.PublicKey{{{}}, {key, key, key, key, key}} {
		if _, err := signing.NewVerifier(signing.VerifierConfig{PublicKeys: keys}); !errors.Is(err, signing.ErrPublicKey) {
			t.Errorf("NewVerifier with the keys %v = %v, want ErrPublicKey", keys, err)
		}
	}
}

func TestWith_InvalidSchemes_ReturnsErrConfig(t *testing.T) {
	signer, err := signing.NewSigner("", signing.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	for _, schemes := range [][]signing.Scheme{nil, {"v2"}, {signing.V1, ""}} {
		if _, err := signer.With(schemes...); !errors.Is(err, signing.ErrConfig) {
			t.Errorf("With(%q) = %v, want ErrConfig", schemes, err)
		}
	}
	many, err := signing.NewSigner("", signing.NewSecret(), signing.NewSecret(), signing.NewSecret(), signing.NewSecret(), signing.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := many.With(signing.V1a); !errors.Is(err, signing.ErrConfig) {
		t.Errorf("With V1a and five secrets = %v, want ErrConfig", err)
	}
}

// A request may hold up to 16 signatures, but V1a tries only the first four.
func TestVerify_FifthV1aSignature_IsNotTried(t *testing.T) {
	secret := signing.NewSecret()
	v := verifierOf(t, signing.VerifierConfig{PublicKeys: []signing.PublicKey{secret.PublicKey()}})
	h := signedWith(t, "body", []signing.Scheme{signing.V1a}, secret)
	good := h.Get(signing.HeaderSignature)
	bad := signedWith(t, "other", []signing.Scheme{signing.V1a}, secret).Get(signing.HeaderSignature)
	for before, want := range map[int]error{3: nil, 4: signing.ErrSignature} {
		h.Set(signing.HeaderSignature, strings.Repeat(bad+" ", before)+good)
		if err := v.Verify(h, []byte("body")); !errors.Is(err, want) {
			t.Errorf("with %d wrong signatures before it: %v, want %v", before, err, want)
		}
	}
}

func FuzzParsePublicKey(f *testing.F) {
	f.Add(signing.NewSecret().PublicKey().String())
	f.Add("whpk_")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := signing.ParsePublicKey(text)
		if err == nil && key.String() != text || err != nil && !key.IsZero() {
			t.Errorf("ParsePublicKey(%q) = %v, %v", text, key, err)
		}
	})
}

func BenchmarkSignV1a(b *testing.B) {
	signer, err := signing.NewSigner("", signing.NewSecret())
	if err != nil {
		b.Fatal(err)
	}
	if signer, err = signer.With(signing.V1, signing.V1a); err != nil {
		b.Fatal(err)
	}
	h, body := make(http.Header), make([]byte, 256)
	for b.Loop() {
		signer.Sign(h, "evt_1", signedAt, body)
	}
}
