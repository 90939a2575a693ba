package cockroach

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/storageapi/storageapi/store/postgres" // imported so that its changes invalidate cached test results
)

// The package whose statements are parsed, and its file whose statements are exempt.
const (
	root  = "../.."
	plain = "plain.go"
)

// A statement is the text of a statement that the package sends.
type statement struct {
	text  string
	where string // source position of the call that sends it
	plain bool   // all of its text is in the file plain
}

// A source holds the package's syntax trees and type information.
type source struct {
	files []*ast.File
	fset  *token.FileSet
	info  types.Info

	params  map[types.Object]param           // keyed by the parameter
	calls   map[types.Object][]*ast.CallExpr // keyed by the function, or the variable with a function literal
	returns map[types.Object][][]ast.Expr    // keyed by the function
	values  map[types.Object][]value         // keyed by the variable or field
	open    map[types.Object]bool            // objects that are being evaluated, to stop recursion
}

// A param is a parameter of a function of the package.
type param struct {
	of    types.Object
	index int
}

// A value is an expression that is assigned or appended to a variable.
type value struct {
	expr   ast.Expr
	result int // index of the result, if the expression is a call
	added  bool
}

// load type-checks the package without its tests.
func load(t *testing.T) *source {
	t.Helper()
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,DepOnly", ".")
	command.Dir, command.Stderr = root, os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	s := &source{fset: token.NewFileSet()}
	exports := make(map[string]string)
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
			DepOnly            bool
		}
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(s.fset, filepath.Join(root, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			s.files = append(s.files, file)
		}
	}
	s.info = types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if _, err := config.Check("postgres", s.fset, s.files, &s.info); err != nil {
		t.Fatal(err)
	}
	s.index()
	return s
}

// object returns the object to which a name refers.
func (s *source) object(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if o := s.info.Defs[e]; o != nil {
			return o
		}
		return s.info.Uses[e]
	case *ast.SelectorExpr:
		return s.info.Uses[e.Sel]
	}
	return nil
}

// index records the values of parameters, variables and fields.
func (s *source) index() {
	s.params, s.calls, s.returns = make(map[types.Object]param), make(map[types.Object][]*ast.CallExpr), make(map[types.Object][][]ast.Expr)
	s.values, s.open = make(map[types.Object][]value), make(map[types.Object]bool)
	declare := func(of types.Object, f *ast.FuncType) {
		i := 0
		for _, field := range f.Params.List {
			for _, name := range field.Names {
				s.params[s.info.Defs[name]] = param{of, i}
				i++
			}
			i += max(0, 1-len(field.Names))
		}
	}
	set := func(to, from ast.Expr, added bool) {
		o := s.object(to)
		if o == nil {
			return
		}
		s.values[o] = append(s.values[o], value{from, 0, added})
		if f, ok := ast.Unparen(from).(*ast.FuncLit); ok {
			declare(o, f.Type)
		}
	}
	for _, file := range s.files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				o := s.info.Defs[f.Name]
				declare(o, f.Type)
				ast.Inspect(f, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						s.returns[o] = append(s.returns[o], r.Results)
					}
					_, inner := n.(*ast.FuncLit)
					return !inner
				})
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, from := range n.Values {
					if len(n.Values) == len(n.Names) {
						set(n.Names[i], from, false)
					}
				}
			case *ast.AssignStmt:
				for i, from := range n.Rhs {
					if len(n.Rhs) == len(n.Lhs) {
						set(n.Lhs[i], from, n.Tok == token.ADD_ASSIGN)
					}
				}
				for i, to := range n.Lhs {
					if o := s.object(to); o != nil && len(n.Rhs) < len(n.Lhs) {
						s.values[o] = append(s.values[o], value{n.Rhs[0], i, false})
					}
				}
			case *ast.CompositeLit:
				s.fields(n)
			case *ast.CallExpr:
				if o := s.object(n.Fun); o != nil {
					s.calls[o] = append(s.calls[o], n)
				}
			}
			return true
		})
	}
}

// fields records the values that a composite literal gives to the fields of a struct.
func (s *source) fields(n *ast.CompositeLit) {
	of := s.info.Types[n].Type.Underlying()
	if p, ok := of.(*types.Pointer); ok { // an element of a literal whose elements are pointers
		of = p.Elem().Underlying()
	}
	structure, ok := of.(*types.Struct)
	if !ok {
		return
	}
	for i, from := range n.Elts {
		var o types.Object
		if pair, ok := from.(*ast.KeyValueExpr); ok {
			o, from = s.object(pair.Key), pair.Value
		} else {
			o = structure.Field(i)
		}
		s.values[o] = append(s.values[o], value{from, 0, false})
	}
}

// statements returns the statements that the package sends, and the positions of statements whose
// text cannot be determined.
func (s *source) statements() (list []statement, unknown []string) {
	send := func(e ast.Expr) {
		where := strings.TrimPrefix(s.fset.Position(e.Pos()).String(), root+"/")
		texts, ok := s.texts(e)
		if !ok {
			unknown = append(unknown, where)
		}
		for _, text := range texts {
			text.where = where
			list = append(list, text)
		}
	}
	for o, calls := range s.calls {
		f, ok := o.(*types.Func)
		if i := sends(f); ok && i >= 0 {
			for _, call := range calls {
				send(call.Args[i])
			}
		}
	}
	for o, values := range s.values {
		if f, ok := o.(*types.Var); ok && f.IsField() && f.Name() == "BeginQuery" {
			for _, v := range values {
				send(v.expr)
			}
		}
	}
	return list, unknown
}

// sends returns the index of the argument of f that is a statement, or -1 if f sends no statement.
func sends(f *types.Func) int {
	if f == nil || f.Pkg() == nil || f.Signature().Recv() == nil {
		return -1
	}
	ours := f.Pkg().Path() == "postgres" && (f.Name() == "Query" || f.Name() == "QueryRow") // the methods of querier
	if !ours && !strings.HasPrefix(f.Pkg().Path(), "github.com/jackc/pgx/") {
		return -1
	}
	for i := range f.Signature().Params().Len() {
		p := f.Signature().Params().At(i)
		if p.Type() == types.Typ[types.String] && (p.Name() == "sql" || p.Name() == "query") {
			return i
		}
	}
	return -1
}

// texts returns all possible values of an expression, and whether they could be determined. The
// values of a parameter are the callers' arguments.
func (s *source) texts(e ast.Expr) (list []statement, ok bool) {
	e = ast.Unparen(e)
	if v := s.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		at := e.Pos()
		if o := s.object(e); o != nil {
			at = o.Pos()
		}
		return []statement{{text: constant.StringVal(v), plain: s.inPlain(at)}}, true
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		left, ok := s.texts(e.X)
		right, ok2 := s.texts(e.Y)
		return joined(left, right), ok && ok2
	case *ast.CallExpr:
		return s.called(e, 0)
	case *ast.Ident, *ast.SelectorExpr:
		return s.named(s.object(e))
	}
	return nil, false
}

func (s *source) inPlain(at token.Pos) bool {
	return filepath.Base(s.fset.Position(at).Filename) == plain
}

func joined(left, right []statement) (list []statement) {
	for _, l := range left {
		for _, r := range right {
			list = append(list, statement{text: l.text + r.text, plain: l.plain && r.plain})
		}
	}
	return list
}

// called returns the possible values of a call's result. The result of query is the text of a file.
// The results of sql and in are their argument, for another schema.
func (s *source) called(call *ast.CallExpr, result int) (list []statement, ok bool) {
	o := s.object(call.Fun)
	if o == nil || o.Pkg() == nil || s.open[o] {
		return nil, false
	}
	switch name := o.Name(); {
	case o.Pkg().Path() == "strings" && (name == "ReplaceAll" || name == "Replace"):
		return s.replaced(call)
	case o.Pkg().Path() == "postgres" && s.inPlain(o.Pos()):
		return nil, true // the statement is assembled in that package
	case o.Pkg().Path() != "postgres":
		return nil, false
	case name == "query" || name == "queryWithout":
		return s.file(call)
	case name == "sql" || name == "in":
		return s.texts(call.Args[0])
	}
	s.open[o] = true
	defer delete(s.open, o)
	ok = len(s.returns[o]) > 0
	for _, results := range s.returns[o] {
		if result >= len(results) {
			return nil, false
		}
		texts, known := s.texts(results[result])
		list, ok = append(list, texts...), ok && known
	}
	return list, ok
}

// file returns the text of the query file that a call names, possibly with a part removed.
func (s *source) file(call *ast.CallExpr) (list []statement, ok bool) {
	args := make([]string, 2)
	for i, arg := range call.Args {
		texts, known := s.texts(arg)
		if !known || len(texts) != 1 {
			return nil, false
		}
		args[i] = texts[0].text
	}
	text, err := os.ReadFile(filepath.Join(root, "queries", args[0]+".sql"))
	before, more, _ := strings.Cut(string(text), "-- begin "+args[1]+"\n")
	_, after, _ := strings.Cut(more, "-- end "+args[1]+"\n")
	return []statement{{text: before + after, plain: s.inPlain(call.Pos())}}, err == nil
}

func (s *source) replaced(call *ast.CallExpr) (list []statement, ok bool) {
	texts, ok := s.texts(call.Args[0])
	olds, ok2 := s.texts(call.Args[1])
	news, ok3 := s.texts(call.Args[2])
	if !ok || !ok2 || !ok3 || len(olds) != 1 {
		return nil, false
	}
	for _, text := range texts {
		for _, by := range news {
			list = append(list, statement{text: strings.ReplaceAll(text.text, olds[0].text, by.text), plain: text.plain && by.plain})
		}
	}
	return list, true
}

// named returns the possible values of a variable, field or parameter.
func (s *source) named(o types.Object) (list []statement, ok bool) {
	if o == nil || s.open[o] {
		return nil, false
	}
	s.open[o] = true
	defer delete(s.open, o)
	ok = true
	if p, is := s.params[o]; is {
		if f, is := p.of.(*types.Func); is && sends(f) == p.index {
			return nil, true // the caller sends it
		}
		for _, call := range s.calls[p.of] {
			texts, known := s.texts(call.Args[p.index])
			list, ok = append(list, texts...), ok && known
		}
	}
	for _, v := range s.values[o] {
		var texts []statement
		var known bool
		if call, is := ast.Unparen(v.expr).(*ast.CallExpr); is && v.result > 0 {
			texts, known = s.called(call, v.result)
		} else {
			texts, known = s.texts(v.expr)
		}
		if v.added {
			texts = joined(list, texts)
		}
		list, ok = append(list, texts...), ok && known
	}
	return list, ok && len(list)+len(s.values[o]) > 0
}

func (s statement) String() string {
	return fmt.Sprintf("%s: %s", s.where, strings.Join(strings.Fields(s.text), " "))
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
