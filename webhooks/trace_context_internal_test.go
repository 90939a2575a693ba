package webhooks

import (
	"regexp"
	"strings"
	"testing"
)

// FuzzTraceparent checks that everything sent as a traceparent follows the grammar of W3C Trace
// Context.
func FuzzTraceparent(f *testing.F) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, seed := range []string{good, "", good + "-", good[:54], strings.ToUpper(good), strings.Replace(good, "00f067aa0ba902b7", strings.Repeat("0", 16), 1), good[:54] + "\n", "00-" + strings.Repeat("é", 26)} {
		f.Add(seed)
	}
	form := regexp.MustCompile(`\A00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\z`)
	f.Fuzz(func(t *testing.T, trace string) {
		parts := form.FindStringSubmatch(trace)
		want := parts != nil && parts[1] != strings.Repeat("0", 32) && parts[2] != strings.Repeat("0", 16)
		if got := isTraceparent(trace); got != want {
			t.Errorf("%q: %v, want %v", trace, got, want)
		}
	})
}
