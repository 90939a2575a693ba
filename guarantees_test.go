package storageapi_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesAreTested: each guarantee of the README has its line in
// docs/guarantees.md, and the tests that are named there exist.
func TestGuaranteesAreTested(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("docs/guarantees.md")
	_, guarantees, _ := strings.Cut(read("README.md"), "\n## Guarantees, and their limits\n")
	guarantees, _, _ = strings.Cut(guarantees, "\n## ")
	found := regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*`).FindAllStringSubmatch(guarantees, -1)
	if len(found) < 10 {
		t.Fatalf("%d guarantees found in the README", len(found))
	}
	for _, guarantee := range found {
		if !strings.Contains(page, "\n| "+guarantee[1]+" |") {
			t.Errorf("docs/guarantees.md has no line for %q", guarantee[1])
		}
	}

	tests := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, name := range function.FindAllStringSubmatch(read(path), -1) {
				tests[name[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(page, -1) {
		if !tests[name[1]] {
			t.Errorf("docs/guarantees.md names %s, which does not exist", name[1])
		}
	}
}
