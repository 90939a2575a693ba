package storageapi_test

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The doc of each importable package begins with a short description and an example of its use.
func TestPackageDocs_BeginWithSummaryAndExample(t *testing.T) {
	packages := 0
	err := filepath.WalkDir(".", func(dir string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case name == "internal", name == "testdata", name == "node_modules", dir == "examples", dir != "." && name[0] == '.':
			return fs.SkipDir
		}
		documentation, isPackage := packageDoc(t, dir)
		if !isPackage {
			return nil
		}
		packages++
		blocks := new(comment.Parser).Parse(documentation).Content
		words := 0
		for _, block := range blocks {
			switch block := block.(type) {
			case *comment.Paragraph:
				words += len(strings.Fields(string(new(comment.Printer).Text(&comment.Doc{Content: []comment.Block{block}}))))
				continue
			case *comment.Code:
				code := "package p\nfunc _() {\n" + block.Text + "}\n"
				if strings.HasPrefix(block.Text, "func ") {
					code = "package p\n" + block.Text
				}
				if _, err := parser.ParseFile(token.NewFileSet(), dir, code, 0); err != nil {
					t.Errorf("%s: what it begins with is not Go: %v", dir, err)
				}
				if words > 60 {
					t.Errorf("%s: %d words come before the lines that use it, more than 60", dir, words)
				}
				return nil
			}
			break
		}
		t.Errorf("%s: does not begin with what it is for and the lines that use it", dir)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if packages < 12 {
		t.Errorf("%d packages found", packages)
	}
}

// packageDoc returns the package comment of a directory, and whether it contains an importable
// package.
func packageDoc(t *testing.T, dir string) (text string, isPackage bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	positions, parsed := token.NewFileSet(), []*ast.File(nil)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(positions, file, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	// Test-only packages and programs do not count.
	if len(parsed) == 0 || parsed[0].Name.Name == "main" || parsed[0].Name.Name == "e2e" {
		return "", false
	}
	for _, f := range parsed {
		text += f.Doc.Text()
	}
	return text, true
}
