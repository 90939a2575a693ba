package signing_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/signing"
)

func TestNewSigner(t *testing.T) {
	var zero signing.Secret
	tests := []struct {
		name    string
		header  string
		secrets []signing.Secret
		want    error
	}{
		{"default header", "", []signing.Secret{secretA}, nil},
		{"own header", "x-acme_signature", []signing.Secret{secretA, secretB}, nil},
		{"16 secrets", "", manySecrets(16), nil},
		{"17 secrets", "", manySecrets(17), signing.ErrSecret},
		{"no secret", "", nil, signing.ErrSecret},
		{"zero secret", "", []signing.Secret{zero}, signing.ErrSecret},
		{"zero among others", "", []signing.Secret{secretA, zero}, signing.ErrSecret},
		{"space in the header", "X Signature", []signing.Secret{secretA}, signing.ErrConfig},
		{"colon in the header", "X-Signature:", []signing.Secret{secretA}, signing.ErrConfig},
		{"line end in the header", "X-Signature\r\nX", []signing.Secret{secretA}, signing.ErrConfig},
		{"header not ASCII", "X-Signatür", []signing.Secret{secretA}, signing.ErrConfig},
		{"header taken", "webhook-signature", []signing.Secret{secretA}, signing.ErrConfig},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			signer, err := signing.NewSigner(test.header, test.secrets...)
			if !errors.Is(err, test.want) || (signer == nil) != (err != nil) {
				t.Errorf("NewSigner: %v, %v; want %v", signer, err, test.want)
			}
			verifier, err := signing.NewVerifier(signing.VerifierConfig{Header: test.header, Secrets: test.secrets})
			if !errors.Is(err, test.want) || (verifier == nil) != (err != nil) {
				t.Errorf("NewVerifier: %v, %v; want %v", verifier, err, test.want)
			}
		})
	}
}

func manySecrets(n int) []signing.Secret {
	var secrets []signing.Secret
	for i := range n {
		secrets = append(secrets, secretOf(byte(i)))
	}
	return secrets
}

func TestSign_ExistingHeaders_ReplacesOnlyItsOwn(t *testing.T) {
	signer, err := signing.NewSigner("x-acme-signature", secretA)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{
		"Content-Type":     {"application/json"},
		"Webhook-Id":       {"old", "older"},
		"X-Acme-Signature": {"old"},
	}
	signer.Sign(h, "evt_1", signed, []byte("{}"))
	want := http.Header{
		"Content-Type":      {"application/json"},
		"Webhook-Id":        {"evt_1"},
		"Webhook-Timestamp": {"1772366400"},
		"X-Acme-Signature":  {signing.Signature(secretA, []byte("{}"))},
		"Webhook-Signature": header(t, signed, "{}", secretA)["Webhook-Signature"],
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}

	// The values share memory: appending to one must not overwrite the next one.
	h.Add("Webhook-Id", "evt_2")
	if got := h.Get("Webhook-Timestamp"); got != "1772366400" {
		t.Errorf("adding an ID changed the timestamp to %q", got)
	}
}

func TestSigner_SecretsChanged_IsUnaffected(t *testing.T) {
	secrets := []signing.Secret{secretA}
	signer := newSigner(t, secrets...)
	secrets[0] = secretB // the signer must have copied them
	h := http.Header{}
	signer.Sign(h, "evt_1", signed, nil)
	if diff := cmp.Diff(header(t, signed, "", secretA), h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestValidID(t *testing.T) {
	tests := map[string]bool{
		"evt_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2":       true,
		"a":                                    true,
		"3f2504e0-4f89-11d3-9a0c-0305e82c3301": true,
		"order:17/line!~":                      true,
		strings.Repeat("x", 256):               true,
		strings.Repeat("x", 257):               false,
		"":                                     false,
		".":                                    false,
		"evt.1":                                false,
		"evt 1":                                false,
		"evt\n":                                false,
		"evt\x00":                              false,
		"evt\x7f":                              false,
		"évt":                                  false,
	}
	for id, want := range tests {
		if got := signing.ValidID(id); got != want {
			t.Errorf("ValidID(%q) = %v, want %v", id, got, want)
		}
		if panicked := panics(func() { newSigner(t, secretA).Sign(http.Header{}, id, signed, nil) }); panicked == want {
			t.Errorf("Sign with ID %q panicked: %v", id, panicked)
		}
	}
}

// The test tries every byte at every position among bytes at the limits.
func TestValidID_EveryByteAtEveryPosition(t *testing.T) {
	for _, filler := range []string{"!", "-", "/", "~"} {
		for place := range 19 {
			for c := range 256 {
				id := []byte(strings.Repeat(filler, 19))
				id[place] = byte(c)
				want := c > ' ' && c <= '~' && c != '.'
				if got := signing.ValidID(string(id)); got != want {
					t.Fatalf("ValidID(%q) = %v, want %v", id, got, want)
				}
			}
		}
	}
}

func TestSignature(t *testing.T) {
	body := []byte(`{"test": 2432232314}`)
	signature := signing.Signature(secretA, body)
	tests := []struct {
		name  string
		value string
		want  bool
	}{
		{"alone", signature, true},
		{"first of two", signature + "," + signing.Signature(secretB, body), true},
		{"second of two", signing.Signature(secretB, body) + ", " + signature, true},
		{"sixteenth", strings.Repeat("x,", 15) + signature, true},
		{"seventeenth", strings.Repeat("x,", 16) + signature, false},
		{"upper case", strings.ToUpper(signature), false},
		{"another's", signing.Signature(secretB, body), false},
		{"too short", signature[:63], false},
		{"too long", signature + "0", false},
		{"empty", "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := signing.HasSignature(test.value, secretA, body); got != test.want {
				t.Errorf("HasSignature: %v, want %v", got, test.want)
			}
		})
	}

	var zero signing.Secret
	if !panics(func() { signing.Signature(zero, body) }) || !panics(func() { signing.HasSignature("", zero, body) }) {
		t.Error("Signature of the zero Secret does not panic")
	}
}

func TestConcurrentUse(t *testing.T) {
	signer := newSigner(t, secretA, secretB)
	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretB}, Now: at(signed)})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			body := []byte(strings.Repeat("x", g))
			for range 100 {
				h := http.Header{}
				signer.Sign(h, "evt_1", signed, body)
				if err := verifier.Verify(h, body); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}
