package jsontext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/jsontext"
)

// encoding/json must decode every appended string to the original, with invalid UTF-8 replaced.
func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "plain and longer than eight", `"`, `\`, "\x00", "seven\x1f!", "é\u2028😀", "\xff", "a\xc3", "<&>", "12345678\n", "\x7f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := jsontext.AppendString([]byte("before"), text)
		quoted, _ := strings.CutPrefix(string(b), "before")
		var got string
		if err := json.Unmarshal([]byte(quoted), &got); err != nil {
			t.Fatalf("%q became %s: %v", text, quoted, err)
		}
		if want := strings.ToValidUTF8(text, "\ufffd"); got != want {
			t.Errorf("%q decodes to %q", want, got)
		}
	})
}

func TestAppendTime(t *testing.T) {
	at := time.Date(2026, 11, 20, 13, 0, 0, 7_999_999, time.FixedZone("", 3600))
	if got := string(jsontext.AppendTime([]byte("at "), at)); got != "at 2026-11-20T12:00:00.007Z" {
		t.Errorf("AppendTime = %q, want %q", got, "at 2026-11-20T12:00:00.007Z")
	}
}
