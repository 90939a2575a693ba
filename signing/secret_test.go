package signing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/signing"
)

func TestNewSecret(t *testing.T) {
	a, b := signing.NewSecret(), signing.NewSecret()
	if a.Equal(b) {
		t.Error("NewSecret returned the same secret twice")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a.Reveal(), "whsec_"))
	if err != nil || len(key) != 32 {
		t.Errorf("new secret decodes to %d bytes, %v; want 32", len(key), err)
	}
	parsed, err := signing.ParseSecret(a.Reveal())
	if err != nil || !parsed.Equal(a) {
		t.Errorf("ParseSecret(Reveal) of a new secret: %v, or another secret", err)
	}
}

func TestParseSecret(t *testing.T) {
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, n)) }
	tests := []struct {
		name string
		text string
		ok   bool
	}{
		{"24 bytes", "whsec_" + encode(24), true},
		{"25 bytes, padded", "whsec_" + encode(25), true},
		{"64 bytes", "whsec_" + encode(64), true},
		{"23 bytes", "whsec_" + encode(23), false},
		{"65 bytes", "whsec_" + encode(65), false},
		{"empty", "", false},
		{"prefix only", "whsec_", false},
		{"no prefix", encode(32), false},
		{"prefix in upper case", "WHSEC_" + encode(32), false},
		{"prefix twice", "whsec_whsec_" + encode(32), false},
		{"no padding", "whsec_" + strings.TrimRight(encode(32), "="), false},
		{"too much padding", "whsec_" + encode(32) + "=", false},
		{"spare bits set", "whsec_" + strings.TrimSuffix(encode(32), "s=") + "t=", false},
		{"URL alphabet", "whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, 32)), false},
		{"space before", " whsec_" + encode(32), false},
		{"line end after", "whsec_" + encode(32) + "\n", false},
		{"line end inside", "whsec_" + encode(32)[:8] + "\r\n" + encode(32)[8:], false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			secret, err := signing.ParseSecret(test.text)
			if test.ok {
				if err != nil || secret.Reveal() != test.text || secret.IsZero() {
					t.Errorf("ParseSecret: %v, or another text", err)
				}
				return
			}
			if !errors.Is(err, signing.ErrSecret) || !secret.IsZero() {
				t.Errorf("ParseSecret: %v, want ErrSecret and the zero Secret", err)
			}
		})
	}
}

func TestSecretEqual(t *testing.T) {
	var zero signing.Secret
	tests := []struct {
		name string
		a, b signing.Secret
		want bool
	}{
		{"same text", secretA, secretOf('a'), true},
		{"different text", secretA, secretB, false},
		{"zero and not", zero, secretA, false},
		{"not and zero", secretA, zero, false},
		{"both zero", zero, zero, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.a.Equal(test.b); got != test.want {
				t.Errorf("Equal: %v, want %v", got, test.want)
			}
			if got := cmp.Equal(test.a, test.b); got != test.want {
				t.Errorf("cmp.Equal: %v, want %v", got, test.want)
			}
		})
	}
	if !zero.IsZero() || zero.Reveal() != "" || secretA.IsZero() {
		t.Error("zero Secret: IsZero is false, or Reveal is not empty")
	}
}

// The test prints secrets in every known way and searches the output for their text.
func TestSecret_Printed_IsRedacted(t *testing.T) {
	type exported struct {
		Name   string
		Secret signing.Secret
	}
	type unexported struct {
		name    string
		secret  signing.Secret
		secrets []signing.Secret
		next    *unexported
	}
	secret := secretA
	inner := unexported{"inner", secret, []signing.Secret{secret}, nil}
	signer := newSigner(t, secret)
	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secret}})
	signer.Sign(map[string][]string{}, "evt_1", signed, nil) // creates the secret's macs

	values := map[string]any{
		"secret":     secret,
		"pointer":    &secret,
		"slice":      []signing.Secret{secret},
		"map":        map[string]signing.Secret{"k": secret},
		"exported":   exported{"x", secret},
		"unexported": unexported{"outer", secret, []signing.Secret{secret}, &inner},
		"pointed to": &inner,
		"signer":     signer,
		"verifier":   verifier,
		"config":     signing.VerifierConfig{Secrets: []signing.Secret{secret}},
		"error":      fmt.Errorf("wrapped: %v", secret),
	}
	outputs := map[string]string{}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "% X", "%d", "%20v", "%-5s", "%p", "%T", "%!"} {
			outputs[name+" "+verb] = fmt.Sprintf(verb, value)
		}
		outputs[name+" Sprintln"] = fmt.Sprintln(value)

		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", value, slog.Group("g", "v", value))
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", value, slog.Group("g", "v", value))
		outputs[name+" slog"] = log.String()

		data, err := json.Marshal(value)
		outputs[name+" json"] = fmt.Sprint(string(data), err)
		data, err = xml.Marshal(value)
		outputs[name+" xml"] = fmt.Sprint(string(data), err)
	}
	outputs["cmp.Diff"] = cmp.Diff(secretA, secretB)
	outputs["cmp.Diff, nested"] = cmp.Diff(inner, unexported{secret: secretB}, cmp.AllowUnexported(unexported{}))
	outputs["String"] = secret.String()

	text := secretA.Reveal()
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	forbidden := []string{
		strings.TrimPrefix(text, "whsec_")[:16],
		string(key[:8]),
		fmt.Sprintf("%x", key[:8]), fmt.Sprintf("%X", key[:8]), fmt.Sprintf("% X", key[:8]),
		fmt.Sprintf("%x", text[6:14]), fmt.Sprintf("% X", text[6:14]),
		strings.Trim(fmt.Sprint(key[:8]), "[]"), // decimal
	}
	for name, output := range outputs {
		for _, f := range forbidden {
			if strings.Contains(output, f) {
				t.Errorf("%s shows the secret: %s", name, output)
			}
		}
	}

	for _, name := range []string{"secret %v", "secret %#v", "secret %x", "exported %+v", "exported json", "exported slog", "String"} {
		if !strings.Contains(outputs[name], "[redacted]") {
			t.Errorf("%s: %q, want [redacted] in it", name, outputs[name])
		}
	}
	if got, want := outputs["secret json"], `"[redacted]"<nil>`; got != want {
		t.Errorf("JSON: %s, want %s", got, want)
	}
}

func TestSecret_Errors_DoNotContainIt(t *testing.T) {
	text := secretA.Reveal()
	for _, bad := range []string{text[1:], text[:len(text)-1], text + text, "prefix" + text} {
		_, err := signing.ParseSecret(bad)
		if err == nil || strings.Contains(err.Error(), "YWFh") {
			t.Errorf("err = %v, want an error without the text", err)
		}
	}
	var into struct{ Secret signing.Secret }
	err := json.Unmarshal([]byte(`{"Secret":"`+text+`"}`), &into)
	if err == nil || strings.Contains(err.Error(), "YWFh") {
		t.Errorf("unmarshalling: %v, want an error without the text", err)
	}
}

func FuzzParseSecret(f *testing.F) {
	for _, seed := range []string{
		"", "whsec_", secretA.Reveal(), secretA.Reveal() + "\n", secretA.Reveal()[6:],
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "whsec_====",
	} {
		f.Add(seed)
	}
	_, refused := signing.ParseSecret("")
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := signing.ParseSecret(text)
		if err != nil {
			// All rejections have the same message, so the message reveals nothing about the text.
			if !errors.Is(err, signing.ErrSecret) || err.Error() != refused.Error() || !secret.IsZero() {
				t.Errorf("err = %v, want %v and the zero Secret", err, refused)
			}
			return
		}
		if secret.Reveal() != text {
			t.Errorf("%q reads back as %q", text, secret.Reveal())
		}
	})
}
