package dashboard

import (
	"strings"
	"testing"
)

func TestFormatted(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	tests := []struct{ body, want string }{
		{`{"b":1e400,"a":[1,2],"a":"x"}`, "{\n  \"b\": 1e400,\n  \"a\": [\n    1,\n    2\n  ],\n  \"a\": \"x\"\n}"},
		{`["` + strings.Repeat("[", 99) + `\"["]`, "[\n  \"" + strings.Repeat("[", 99) + `\"["` + "\n]"}, // brackets inside a string do not nest
		{nested(maxDepth + 1), ""},
		{`["]",` + nested(maxDepth) + `]`, ""},
		{"", ""},
		{"{", ""},
	}
	for _, test := range tests {
		if got := formatted([]byte(test.body)); got != test.want {
			t.Errorf("%.40s: got %q, want %q", test.body, got, test.want)
		}
	}
	if formatted([]byte(nested(maxDepth))) == "" {
		t.Errorf("nesting of %d is not formatted", maxDepth)
	}
}
