package contract

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLint runs redocly with its recommended rules. It also fails if redocly prints warnings.
func TestLint(t *testing.T) {
	redocly, err := filepath.Abs(filepath.Join("node_modules", ".bin", "redocly"))
	if err == nil {
		_, err = os.Stat(redocly)
	}
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		const message = "needs Node.js, and \"npm ci\" run in internal/contract: %v"
		if os.Getenv("CI") != "" {
			t.Fatalf(message, err)
		}
		t.Skipf(message, err)
	}
	t.Run("default", func(t *testing.T) { lint(t, redocly, load(t)) })
	t.Run("of a host", func(t *testing.T) { lint(t, redocly, loadOwn(t)) })
}

func lint(t *testing.T, redocly string, d *document) {
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, d.text, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), redocly, "lint", "--extends=recommended", "--format=json", file)
	command.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	output, err := command.Output() // an error means that redocly found errors, which output lists
	var found struct {
		Totals   struct{ Errors, Warnings *int }
		Problems []json.RawMessage
	}
	if json.Unmarshal(output, &found) != nil || found.Totals.Errors == nil || found.Totals.Warnings == nil {
		t.Fatalf("not redocly's JSON: %v\n%s", err, output)
	}
	if *found.Totals.Errors+*found.Totals.Warnings > 0 {
		t.Errorf("%d errors and %d warnings: %s", *found.Totals.Errors, *found.Totals.Warnings, found.Problems)
	}
}
