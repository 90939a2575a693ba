package promstorage_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// rule matches the definition of an alert, with its parts as groups.
var rule = regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (.+)\n        for: (\w+)\n        labels: \{severity: (warning|critical)\}\n` +
	`        annotations:\n          summary: (.+)\n          runbook_url: (\S+)$`)

func TestAlerts_EachRule_LinksToOperations(t *testing.T) {
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(page), -1) {
		headings[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	found := rule.FindAllStringSubmatch(string(rules), -1)
	if all := strings.Count(string(rules), "alert: "); len(found) != all || all < 8 {
		t.Fatalf("%d of %d rules have expr, for, severity, summary and runbook_url, want all of at least 8", len(found), all)
	}
	for _, r := range found {
		anchor, is := strings.CutPrefix(r[6], "https://github.com/storageapi/storageapi/blob/main/docs/operations.md#")
		if !is || !headings[anchor] {
			t.Errorf("%s: runbook_url = %s, want a heading of docs/operations.md", r[1], r[6])
		}
	}
}

// Debian's package prometheus contains promtool.
func TestAlerts_Promtool_AcceptsRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
