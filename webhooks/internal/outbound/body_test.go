package outbound

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRedact(t *testing.T) {
	const secret = "abcdefghijklmnopqrstuvwxyz"
	for text, want := range map[string]string{
		"":                               "",
		"abcdefg":                        "abcdefg",
		secret:                           "[redacted]",
		secret + secret:                  "[redacted][redacted]",
		"a" + secret + "z":               "a[redacted]z",
		"x" + secret[:10] + "y":          "x[redacted]y",
		"x" + secret[11:] + "y":          "x[redacted]y",
		"x" + secret[5:20] + "y":         "x[redacted]y",
		"xfghijkly":                      "xfghijkly", // 7 in a row
		secret[:16] + "\\" + secret[16:]: `[redacted]\[redacted]`,
		"[redacted]":                     "[redacted]",
	} {
		if got := redact(text, secret); got != want {
			t.Errorf("redact(%q) = %q, want %q", text, got, want)
		}
	}
	// A secret that contains the replacement text.
	if got, want := redact("redactedredacted", "redactedredacted"), "[[redacted]]"; got != want {
		t.Errorf("redact of a secret that contains the replacement = %q, want %q", got, want)
	}
}

// FuzzClean checks that clean returns short, valid text without 15 consecutive bytes of a secret.
func FuzzClean(f *testing.F) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, seed := range []string{
		"", "ok", "\x00", "\xff\xfe", "€", "caf\xe9", strings.Repeat("x", 1023) + "€", strings.Repeat("\x00", 1024), strings.Repeat("\xff\x00", 2048),
		strings.Repeat("é", 600), "\xed\xa0\x80", "\uFFFD", "\u202e\u200b\x1b[31m", secret, secret[6:], secret[:20], strings.Repeat(secret, 200),
		strings.Repeat("x", 1010) + secret, secret[:8] + "\x00" + secret[8:], strings.Repeat("MfKQ9r8G", 100), `{"secret":"` + secret + `"}`,
	} {
		f.Add(seed, secret)
	}
	f.Add("redactedredacted", "redactedredacted")
	f.Add(strings.Repeat("a", 4096), strings.Repeat("a", 512))
	f.Fuzz(func(t *testing.T, text, secret string) {
		text, secret = text[:min(len(text), maxResponseBody)], secret[:min(len(secret), maxResponse)]
		got := clean(text, secret)
		switch {
		case len(got) > maxResponse:
			t.Errorf("got %d bytes, want at most %d", len(got), maxResponse)
		case !utf8.ValidString(got) || strings.Contains(got, "\x00"):
			t.Errorf("got %q, want valid UTF-8 without NUL", got)
		case len(text) < 8 && utf8.ValidString(text) && !strings.Contains(text, "\x00") && got != text:
			t.Errorf("clean(%q) = %q, want no change", text, got)
		}
		for i := 0; i+15 <= len(secret); i++ {
			if part := secret[i : i+15]; strings.Contains(got, part) && !strings.Contains(part, "redacted") && !strings.ContainsAny(part, "\x00\uFFFD") {
				t.Errorf("got %q, which contains %q of the secret", got, part)
			}
		}
	})
}
