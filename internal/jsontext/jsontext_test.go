package jsontext_test

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/jsontext"
)

func TestAppendTime(t *testing.T) {
	at := time.Date(2026, 11, 20, 13, 0, 0, 7_999_999, time.FixedZone("", 3600))
	if got := string(jsontext.AppendTime([]byte("at "), at)); got != "at 2026-11-20T12:00:00.007Z" {
		t.Errorf("AppendTime = %q, want %q", got, "at 2026-11-20T12:00:00.007Z")
	}
}
