// Package cockroach has only tests. They check that CockroachDB's parser accepts every statement of
// store/postgres outside plain.go, and that CockroachDB has the functions that the statements use.
// They do not run the statements, since there is no server.
package cockroach

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/cockroachdb-parser/pkg/sql/parser"
	"github.com/cockroachdb/cockroachdb-parser/pkg/sql/sem/tree"
)

// functions lists the functions that statements may call, in addition to the schema's functions.
// PostgreSQL 14 and CockroachDB have all of them.
var functions = []string{
	"array_agg", "bool_or", "count", "lag", "max", "min", "row_number", "sum",
	"cardinality", "extract", "generate_series", "greatest", "jsonb_to_recordset", "least", "octet_length", "split_part", "unnest",
	"clock_timestamp", "now", "statement_timestamp",
	"current_setting", "nextval", "setval", "to_regclass",
}

// twice lists the statements that change a table twice: the file that sends the statement and the
// table. CockroachDB rejects such statements unless the session sets
// enable_multiple_modifications_of_table.
var twice = []string{
	"erase.go: storageapi.keys", // a key and the rows of its previous hash
	"settle.go: storageapi.pending",
}

// TestStatements checks that CockroachDB's parser accepts all statements and that they use nothing
// specific to PostgreSQL. Migrations, and the statements with which migrate.go creates a schema,
// are exempt.
func TestStatements(t *testing.T) {
	s := load(t)
	list, unknown := s.statements()
	if len(list) < 150 {
		t.Errorf("%d statements found", len(list))
	}
	known := make(map[string]bool)
	for _, where := range unknown {
		if fileOf(where) != "migrate.go" {
			t.Errorf("%s: what it sends is not known: let it be a constant, or a file of queries", where)
		}
	}
	for _, statement := range list {
		file := fileOf(statement.where)
		if statement.plain || file == "migrate.go" {
			continue
		}
		parsed, err := parser.Parse(statement.text)
		if err != nil {
			t.Errorf("%v\n\t%v", statement, err)
		}
		for _, one := range parsed {
			u := uses{changed: make(map[string]int)}
			u.walk(reflect.ValueOf(one.AST))
			for _, what := range u.particular {
				t.Errorf("%s has %s, which is particular to PostgreSQL: let it do without, or stand in %s\n%v", statement.where, what, plain, statement)
			}
			for table, n := range u.changed {
				if n > 1 && !slices.Contains(twice, file+": "+table) {
					t.Errorf("%s changes %s twice\n%v", statement.where, table, statement)
				}
				known[file+": "+table] = known[file+": "+table] || n > 1
			}
		}
	}
	for _, one := range twice {
		if !known[one] {
			t.Errorf("%s is changed once: take it off the list", one)
		}
	}
}

// TestPostgresOnlySyntaxIsDetected checks that features specific to PostgreSQL are detected
// anywhere in a statement.
func TestPostgresOnlySyntaxIsDetected(t *testing.T) {
	for text, want := range map[string]string{
		"select pg_notify($1, $2)":                                                            "the function pg_notify",
		"with a as (select pg_current_snapshot() as s) select s from a":                       "the function pg_current_snapshot",
		"delete from t where ctid = any(array(select ctid from t limit 1))":                   "the column ctid",
		"select 1 from (select a from t order by a limit $1 for no key update skip locked) t": "skip locked",
		"truncate t": "*tree.Truncate",
	} {
		parsed, err := parser.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		u := uses{changed: make(map[string]int)}
		u.walk(reflect.ValueOf(parsed[0].AST))
		if !slices.Contains(u.particular, want) {
			t.Errorf("%s: found %q, want %s", text, u.particular, want)
		}
	}
	if _, err := parser.Parse("lock table t in exclusive mode"); err == nil {
		t.Error("the parser reads lock table")
	}
}

// TestStatementsAreComplete checks that the other tests cover all statements: each literal in the
// package's source that looks like a statement, and each query file, must be part of a statement
// that the package sends.
func TestStatementsAreComplete(t *testing.T) {
	s := load(t)
	list, _ := s.statements()
	sent := func(text string) bool {
		return slices.ContainsFunc(list, func(one statement) bool { return strings.Contains(one.text, text) })
	}
	for _, file := range s.files {
		name := filepath.Base(s.fset.Position(file.Pos()).Filename)
		if name == plain || name == "migrate.go" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			words := strings.Fields(text)
			if err == nil && len(words) > 1 && slices.Contains(verbs, words[0]) && !sent(text) {
				t.Errorf("%v: a statement that is not found to be sent: %.100s", s.fset.Position(n.Pos()), strings.Join(words, " "))
			}
			return true
		})
	}
	files, err := filepath.Glob(filepath.Join(root, "queries", "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !sent(fileText(t, name)) {
			t.Errorf("%s is not sent", name)
		}
	}
}

// verbs lists the words with which statements begin.
var verbs = []string{"select", "insert", "update", "delete", "with", "lock", "set", "truncate", "create", "drop", "alter", "begin", "listen", "notify", "copy"}

func fileOf(where string) string {
	file, _, _ := strings.Cut(where, ":")
	return file
}

// uses records the functions and features that a statement uses.
type uses struct {
	particular []string       // features that only PostgreSQL has
	changed    map[string]int // number of changes by table
}

// walk records the uses in one node of a statement's syntax tree, and in its children.
func (u *uses) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			u.walk(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			u.walk(v.Index(i))
		}
	case reflect.Struct:
		if v.CanAddr() {
			u.add(v.Addr().Interface())
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				u.walk(v.Field(i))
			}
		}
	}
}

func (u *uses) add(part any) {
	switch part := part.(type) {
	case *tree.FuncExpr:
		if name := part.Func.String(); !slices.Contains(functions, name) && !strings.HasPrefix(name, "storageapi.") {
			u.particular = append(u.particular, "the function "+name)
		}
	case *tree.UnresolvedName:
		if name := part.Parts[0]; slices.Contains([]string{"ctid", "xmin", "xmax", "cmin", "cmax"}, name) {
			u.particular = append(u.particular, "the column "+name)
		}
	case *tree.LockingItem:
		if part.WaitPolicy != tree.LockWaitBlock {
			u.particular = append(u.particular, strings.ToLower(part.WaitPolicy.String()))
		}
	case *tree.Insert:
		u.changes(part.Table)
	case *tree.Update:
		u.changes(part.Table)
	case *tree.Delete:
		u.changes(part.Table)
	case *tree.Truncate, *tree.CreateTable, *tree.CreateSequence, *tree.SetVar:
		u.particular = append(u.particular, fmt.Sprintf("%T", part))
	}
}

func (u *uses) changes(table tree.TableExpr) { u.changed[strings.Fields(tree.AsString(table))[0]]++ }
