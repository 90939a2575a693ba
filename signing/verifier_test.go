package signing_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

func TestNewVerifier_InvalidConfig_ReturnsErrConfig(t *testing.T) {
	for name, config := range map[string]signing.VerifierConfig{
		"negative tolerance": {Secrets: []signing.Secret{secretA}, Tolerance: -1},
		"negative size":      {Secrets: []signing.Secret{secretA}, MaxBody: -1},
	} {
		if _, err := signing.NewVerifier(config); !errors.Is(err, signing.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)
		}
	}

	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretA}}) // all defaults
	if err := verifier.Verify(header(t, time.Now(), "{}", secretA), []byte("{}")); err != nil {
		t.Error(err)
	}
}

// TestVerify covers the cases that the vectors cannot express, or that other receivers need not
// reject.
func TestVerify(t *testing.T) {
	const body = `{"ok":true}`
	other := header(t, signed, body, secretB)
	tests := []struct {
		name   string
		change func(h http.Header)
		want   error
	}{
		{"untouched", func(h http.Header) {}, nil},
		{"halves by different live secrets", func(h http.Header) {
			h.Set("X-Service-Signature", other.Get("X-Service-Signature"))
		}, nil},
		{"id twice", func(h http.Header) { h.Add("Webhook-Id", "evt_1") }, signing.ErrSignature},
		{"timestamp twice", func(h http.Header) { h.Add("Webhook-Timestamp", "1772366400") }, signing.ErrSignature},
		{"signature twice", func(h http.Header) { h.Add("Webhook-Signature", "v1,x") }, signing.ErrSignature},
		{"service signature twice", func(h http.Header) { h.Add("X-Service-Signature", "x") }, signing.ErrSignature},
		{"no header at all", func(h http.Header) { clear(h) }, signing.ErrSignature},
		{"id empty", resign("", "1772366400", body), signing.ErrSignature},
		{"id with a dot", resign("evt.1", "1772366400", body), signing.ErrSignature},
		{"timestamp 0", resign("evt_1", "0", body), signing.ErrTimestamp},
		{"timestamp with a plus", resign("evt_1", "+1772366400", body), signing.ErrTimestamp},
		{"timestamp negative", resign("evt_1", "-1772366400", body), signing.ErrTimestamp},
		{"timestamp with a space", resign("evt_1", " 1772366400", body), signing.ErrTimestamp},
		{"timestamp with an underscore", resign("evt_1", "1_772_366_400", body), signing.ErrTimestamp},
		{"timestamp hexadecimal", resign("evt_1", "0x69A42A40", body), signing.ErrTimestamp},
		{"timestamp with a fraction", resign("evt_1", "1772366400.0", body), signing.ErrTimestamp},
		{"timestamp with an exponent", resign("evt_1", "1772366400e0", body), signing.ErrTimestamp},
		{"timestamp in other digits", resign("evt_1", "１７７２３６６４００", body), signing.ErrTimestamp},
		{"timestamp 2^40-1", resign("evt_1", "1099511627775", body), signing.ErrTimestamp},
		{"timestamp 2^63", resign("evt_1", "9223372036854775808", body), signing.ErrTimestamp},
		{"timestamp wrapping round to now", resign("evt_1", "18446744075481918016", body), signing.ErrTimestamp},
		{"upper-case hex", func(h http.Header) {
			h.Set("X-Service-Signature", strings.ToUpper(h.Get("X-Service-Signature")))
		}, signing.ErrSignature},
		{"sixteenth signature", func(h http.Header) {
			h.Set("Webhook-Signature", strings.Repeat("v1,x ", 15)+h.Get("Webhook-Signature"))
		}, nil},
		{"seventeenth signature", func(h http.Header) {
			h.Set("Webhook-Signature", strings.Repeat("v1,x ", 16)+h.Get("Webhook-Signature"))
		}, signing.ErrSignature},
		{"unpadded base64", func(h http.Header) {
			h.Set("Webhook-Signature", strings.TrimRight(h.Get("Webhook-Signature"), "="))
		}, signing.ErrSignature},
		{"halves swapped", func(h http.Header) {
			h["Webhook-Signature"], h["X-Service-Signature"] = h["X-Service-Signature"], h["Webhook-Signature"]
		}, signing.ErrSignature},
	}
	verifier := newVerifier(t, signing.VerifierConfig{
		Secrets: []signing.Secret{secretB, secretA}, Now: at(signed),
	})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := header(t, signed, body, secretA)
			test.change(h)
			if err := verifier.Verify(h, []byte(body)); !errors.Is(err, test.want) {
				t.Errorf("Verify: %v, want %v", err, test.want)
			}
		})
	}
}

// The test changes each bit of each character of both signatures.
func TestVerify_AnyCharacterChanged_ReturnsErrSignature(t *testing.T) {
	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretA}, Now: at(signed)})
	h := header(t, signed, "{}", secretA)
	for _, name := range []string{"X-Service-Signature", "Webhook-Signature"} {
		right := h.Get(name)
		for i := range 8 * len(right) {
			wrong := []byte(right)
			wrong[i/8] ^= 1 << (i % 8)
			h.Set(name, string(wrong))
			if err := verifier.Verify(h, []byte("{}")); !errors.Is(err, signing.ErrSignature) {
				t.Errorf("%s %q: %v, want ErrSignature", name, wrong, err)
			}
		}
		h.Set(name, right)
	}
	if err := verifier.Verify(h, []byte("{}")); err != nil {
		t.Error(err)
	}
}

// resign returns a function that changes ID and timestamp and signs them with secretA, so that only
// their form is invalid.
func resign(id, timestamp, body string) func(http.Header) {
	return func(h http.Header) {
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", timestamp)
		h.Set("Webhook-Signature", "v1,"+standard(secretA, id, timestamp, body))
	}
}

// standard computes a Standard Webhooks signature from its definition.
func standard(secret signing.Secret, id, timestamp, body string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + body))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestVerifyTolerance(t *testing.T) {
	tests := []struct {
		tolerance, offset time.Duration
		want              error
	}{
		{0, 5 * time.Minute, nil},
		{0, 5*time.Minute + 1, signing.ErrTimestamp},
		{0, -5 * time.Minute, nil},
		{0, -5*time.Minute - 1, signing.ErrTimestamp},
		{time.Second, time.Second, nil},
		{time.Second, 1001 * time.Millisecond, signing.ErrTimestamp},
		{time.Second, -1001 * time.Millisecond, signing.ErrTimestamp},
		{1<<63 - 1, 200 * 365 * 24 * time.Hour, nil},
	}
	for _, test := range tests {
		verifier := newVerifier(t, signing.VerifierConfig{
			Secrets: []signing.Secret{secretA}, Tolerance: test.tolerance, Now: at(signed.Add(test.offset)),
		})
		if err := verifier.Verify(header(t, signed, "", secretA), nil); !errors.Is(err, test.want) {
			t.Errorf("tolerance %v, clock off by %v: %v, want %v", test.tolerance, test.offset, err, test.want)
		}
	}

	// The difference between the timestamp and each of these times overflows.
	for _, now := range []time.Time{{}, time.Unix(-1<<40, 0), time.Unix(1<<60, 0)} {
		verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretA}, Now: at(now)})
		if err := verifier.Verify(header(t, signed, "", secretA), nil); !errors.Is(err, signing.ErrTimestamp) {
			t.Errorf("at %v: %v, want ErrTimestamp", now, err)
		}
	}
}

// FuzzVerify compares Verify with the definition of the two signatures, and checks that a receiver
// with an unknown secret accepts nothing.
func FuzzVerify(f *testing.F) {
	const body = `{"ok":true}`
	add := func(h http.Header, body string) {
		f.Add(h.Get("X-Service-Signature"), h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), []byte(body))
	}
	add(http.Header{}, "")
	add(header(f, signed, body, secretA), body)
	add(header(f, signed, body, secretA, secretB), body)
	add(header(f, signed, "", secretA), "")
	for _, v := range readVectors(f).Verify {
		add(headerOf(v.Headers), v.Body)
	}

	known := newVerifier(f, signing.VerifierConfig{Secrets: []signing.Secret{secretA}, Now: at(signed)})
	unknown := newVerifier(f, signing.VerifierConfig{Secrets: []signing.Secret{signing.NewSecret()}, Now: at(signed)})
	f.Fuzz(func(t *testing.T, service, id, timestamp, list string, body []byte) {
		h := http.Header{
			"X-Service-Signature": {service}, "Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {list},
		}
		if err := unknown.Verify(h, body); !errors.Is(err, signing.ErrSignature) && !errors.Is(err, signing.ErrTimestamp) {
			t.Errorf("Verify with an unknown secret: %v", err)
		}
		if known.Verify(h, body) != nil {
			return
		}
		mac := hmac.New(sha256.New, []byte(secretA.Reveal()))
		mac.Write(body)
		if !strings.Contains(service, hex.EncodeToString(mac.Sum(nil))) ||
			!strings.Contains(list, "v1,"+standard(secretA, id, timestamp, string(body))) ||
			strings.Contains(id, ".") {
			t.Error("accepted without a signature")
		}
	})
}
