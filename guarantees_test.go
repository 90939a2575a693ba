package storageapi_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesAreTested checks that docs/guarantees.md names tests for each guarantee, and that
// these tests exist.
func TestGuaranteesAreTested(t *testing.T) {
	sections := strings.Split(readFile(t, "docs/guarantees.md"), "\n### ")[1:]
	if len(sections) < 15 {
		t.Fatalf("%d guarantees found", len(sections))
	}
	tests := testNames(t)
	name := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	for _, section := range sections {
		guarantee, text, _ := strings.Cut(section, "\n")
		_, heldBy, _ := strings.Cut(text, "\nHeld by: ")
		if !name.MatchString(heldBy) {
			t.Errorf("%s: no test holds it", guarantee)
		}
		for _, found := range name.FindAllStringSubmatch(text, -1) {
			if !tests[found[1]] {
				t.Errorf("%s: %s does not exist", guarantee, found[1])
			}
		}
	}
}

// testNames returns the names of all tests in all modules.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, found := range function.FindAllStringSubmatch(readFile(t, path), -1) {
				names[found[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
