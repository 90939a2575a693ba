// Typecheck type-checks the module in the current directory, with its tests, for the operating
// systems that are its arguments. It finds what does not compile there, like GOOS=… go vet, without
// compiling the standard library and all dependencies for each system.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		if err := check(system); err != nil {
			fmt.Printf("%s: %v\n", system, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// A listed is a package as go list describes it.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string // imports that are another package: vendored ones, variants for a test
	DepOnly         bool
	Module          *struct{ GoVersion string }
}

func check(system string) error {
	list := exec.Command("go", "list", "-deps", "-test", "-json=Dir,ImportPath,GoFiles,ImportMap,DepOnly,Module", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	files, errors, checked := token.NewFileSet(), 0, 0
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	for packages := json.NewDecoder(bytes.NewReader(out)); packages.More(); { // dependencies come first
		var p listed
		if err := packages.Decode(&p); err != nil {
			return err
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the latter are generated
			continue
		}
		report := func(err error) {
			errors++
			fmt.Printf("%s: %v\n", system, err)
		}
		config := types.Config{
			Importer:         importer{known, p.ImportMap},
			IgnoreFuncBodies: p.DepOnly,
			Sizes:            types.SizesFor("gc", runtime.GOARCH),
			Error:            report,
		}
		if p.Module != nil {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		var syntax []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				report(err)
				continue
			}
			syntax = append(syntax, file)
		}
		known[p.ImportPath], _ = config.Check(p.ImportPath, files, syntax, nil) // its errors were reported
		if !p.DepOnly {
			checked++
		}
	}
	if errors > 0 || checked == 0 {
		return fmt.Errorf("%d errors in %d packages", errors, checked)
	}
	fmt.Printf("%s: %d packages, tests included\n", system, checked)
	return nil
}

// An importer resolves imports from the packages that were checked before.
type importer struct {
	known map[string]*types.Package
	other map[string]string
}

func (i importer) Import(path string) (*types.Package, error) {
	if other, ok := i.other[path]; ok {
		path = other
	}
	if found, ok := i.known[path]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("%s is not listed before the packages that import it", path)
}
