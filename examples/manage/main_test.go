package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestManage(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, false); err != nil {
		t.Fatalf("%v, after:\n%s", err, &out)
	}
	for _, want := range []string{
		"refused: 409 CONFLICT", "refused: 412 PRECONDITION_FAILED", "refused: 401 UNAUTHORIZED", "refused: 404 NOT_FOUND",
		"refused: 400 VALIDATION_ERROR: url ", "dead after 1 attempt", "delivered after 2 attempts", "recovered 3",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	t.Log("\n" + out.String())
}
