package storageapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/auth"
)

// docs/troubleshooting.md must list exactly the lines that the library logs.
func TestTroubleshooting_LogLines_MatchTheCode(t *testing.T) {
	_, table, found := strings.Cut(readFile(t, "docs/troubleshooting.md"), "\n## Log lines\n")
	if !found {
		t.Fatal("docs/troubleshooting.md has no log lines")
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1) {
		for _, line := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, line[1])
		}
	}
	logged := logLines(t)
	if len(logged) < 30 {
		t.Fatalf("%d log lines found in the code, want at least 30", len(logged))
	}
	for line, at := range logged {
		if !startsWithAny(line, documented) {
			t.Errorf("%s: docs/troubleshooting.md does not explain %q", at, line)
		}
	}
	for _, line := range documented {
		used := false
		for l := range logged {
			used = used || strings.HasPrefix(l, line)
		}
		if !used {
			t.Errorf("docs/troubleshooting.md explains %q, which the code does not log", line)
		}
	}
}

func startsWithAny(text string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// logLines returns the texts that the packages log, without the package's prefix, with their
// locations in the code. A string that begins with such a prefix is a log line unless it is the
// text of an error or a panic.
func logLines(t *testing.T) map[string]string {
	t.Helper()
	lines := make(map[string]string)
	skipped := map[string]bool{"examples": true, "node_modules": true, "testdata": true, "release": true, "storageapitest": true}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (skipped[entry.Name()] || path != "." && entry.Name()[0] == '.'):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				return !isErrorText(n)
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				for _, prefix := range []string{"storageapi: ", "dashboard: "} {
					if line, is := strings.CutPrefix(text, prefix); err == nil && is {
						lines[strings.TrimSpace(line)] = positions.Position(n.Pos()).String()
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// isErrorText reports whether a call creates an error or a panic from its text.
func isErrorText(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		of, _ := f.X.(*ast.Ident)
		return of != nil && (of.Name == "errors" || of.Name == "fmt")
	}
	return false
}

// The error texts by which docs/troubleshooting.md identifies failed starts must exist in the code.
func TestTroubleshooting_StartupErrors_ExistInTheCode(t *testing.T) {
	_, table, _ := strings.Cut(readFile(t, "docs/troubleshooting.md"), "\n## The process does not start\n")
	table, _, _ = strings.Cut(table, "\n## ")
	texts := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	if len(texts) < 5 {
		t.Fatalf("docs/troubleshooting.md has %d errors of a start, want at least 5", len(texts))
	}
	var code strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go"):
			code.WriteString(readFile(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if !strings.Contains(code.String(), text[1]) {
			t.Errorf("docs/troubleshooting.md explains the error %q, which the code does not return", text[1])
		}
	}
}

func TestTroubleshooting_ErrorCodes_AreComplete(t *testing.T) {
	page := readFile(t, "docs/troubleshooting.md")
	for _, code := range []string{
		auth.CodeUnauthorized, auth.CodeForbidden, auth.CodeValidation, auth.CodeNotFound, auth.CodeMethodNotAllowed, auth.CodeConflict,
		auth.CodePreconditionFailed, auth.CodePayloadTooLarge, auth.CodeUnsupportedMediaType, auth.CodeRateLimit, auth.CodeInternal, auth.CodeUnavailable,
	} {
		if !strings.Contains(page, code) {
			t.Errorf("docs/troubleshooting.md does not explain %s", code)
		}
	}
}
