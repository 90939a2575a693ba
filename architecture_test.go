package storageapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"testing"
)

// The test checks that every file named in ARCHITECTURE.md exists, and that the page's walkthroughs
// name functions from the files that they cite.
func TestArchitecture_NamedFilesAndFunctions_Exist(t *testing.T) {
	page := readFile(t, "ARCHITECTURE.md")
	for _, path := range regexp.MustCompile("`([a-z0-9_/]+\\.(?:go|json))`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(path[1]); err != nil {
			t.Error(err)
		}
	}
	steps := regexp.MustCompile("(?m)^- `([a-z0-9_/]+\\.go)`: ((?:`[A-Za-z.]+`(?:, )?)+)").FindAllStringSubmatch(page, -1)
	if len(steps) < 30 {
		t.Fatalf("%d steps found", len(steps))
	}
	for _, step := range steps {
		there := functionsOf(t, step[1])
		for _, name := range regexp.MustCompile("`([A-Za-z.]+)`").FindAllStringSubmatch(step[2], -1) {
			if !there[name[1]] {
				t.Errorf("%s: no function %s", step[1], name[1])
			}
		}
	}
}

// functionsOf returns the names of a file's functions and methods, as "function" and "Type.method".
func functionsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	names := make(map[string]bool)
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			if generic, ok := receiver.(*ast.IndexExpr); ok {
				receiver = generic.X
			}
			if named, ok := receiver.(*ast.Ident); ok {
				name = named.Name + "." + name
			}
		}
		names[name] = true
	}
	return names
}
