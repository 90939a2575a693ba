package storageapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A retired word must not be used again, because readers know another term for the same thing.
type retired struct {
	words string // the word and its forms
	say   string // the word to use instead
	in    scope

	except []string // names in which the word is allowed; a directory ends with a slash
}

// A scope determines where a word must not be used.
type scope int

const (
	exported scope = iota // in exported names
	names                 // in any name
	text                  // in names and comments
)

// retiredWords lists former words for mechanisms that have an established name (see the glossary in
// ARCHITECTURE.md), and words that have plainer alternatives.
var retiredWords = []retired{
	{"pacer pace paced", "limiter, LimiterState", names, nil},
	{"ailing", "slowFailing", text, nil},
	{"respite", "outage", names, nil},
	{"fly flights", "run; attempts in flight", names, nil},
	{"landed landing landings", "finished", names, nil},
	{"vacate vacated", "free", text, nil},
	{"crew", "workerPool", text, nil},
	{"keeper", "maintainer", text, nil},
	{"hurry", "wake", text, nil},
	{"review reviewed", "reevaluate", names, nil},
	{"alarm alarms", "markDue", names, nil},
	{"soft", "Deferrable", names, nil},

	{"envelope envelopes", "EncodedEvent", text, nil},
	{"seal", "encode; seal is for secrets only", exported, []string{"signing/"}},
	{"terms", "CreateOptions", names, nil},
	{"reused", "ErrIdempotencyMismatch", exported, nil},
	{"raised", "nothing: a claim asks for caps", names, nil},
	{"lapsed lapse", "ExpiredLeases", exported, nil},
	{"expedite", "MakeDue", names, nil},
	{"seize", "Reserve", names, nil},
	{"recall", "resume", names, nil},
	{"agenda", "timers", exported, nil},
	{"debt debts owe owes unowe", "pending, enqueue, remove", text, nil},

	{"census", "counts", names, nil},
	{"draft drafts", "open segment", names, nil},
	{"sight sights", "candidates", names, nil},
	{"stretch stretches", "key range", names, nil},
	{"awoke", "resumed", names, nil},
	{"incoming", "limited connection", names, nil},

	{"whoever somebody", "who it is: the caller, a key, another process", text, []string{"store/postgres/"}},
	{"beside", "next to, with, in addition to", text, []string{"store/postgres/"}},
	{"anew", "again", text, []string{"store/postgres/"}},
}

// TestRetiredWords checks that retired words are not used.
func TestRetiredWords(t *testing.T) {
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (entry.Name() == "node_modules" || entry.Name() == "testdata" || entry.Name()[0] == '.'):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, u := range wordsIn(t, file) {
			for _, r := range retiredWords {
				if u.in <= r.in && slices.Contains(strings.Fields(r.words), u.word) && !r.excepts(file, u.name) {
					t.Errorf("%s: %q in %s: say %s", u.at, u.word, u.name, r.say)
				}
			}
		}
	}
}

// A use is one occurrence of a retired word.
type use struct {
	word string
	name string // the name that contains it, or "a comment"
	in   scope
	at   token.Position
}

var (
	wordInName = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)
	wordInText = regexp.MustCompile(`[A-Za-z]+`)
)

// wordsIn returns the words in a file's comments and in the names that it declares.
func wordsIn(t *testing.T, file string) (uses []use) {
	t.Helper()
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declare := func(list ...*ast.Ident) {
		for _, name := range list {
			in := names
			if name.IsExported() {
				in = exported
			}
			for _, word := range wordInName.FindAllString(name.Name, -1) {
				uses = append(uses, use{strings.ToLower(word), name.Name, in, positions.Position(name.Pos())})
			}
		}
	}
	assigned := func(list ...ast.Expr) {
		for _, e := range list {
			if name, ok := e.(*ast.Ident); ok {
				declare(name)
			}
		}
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.File:
			declare(n.Name)
		case *ast.FuncDecl:
			declare(n.Name)
		case *ast.TypeSpec:
			declare(n.Name)
		case *ast.ValueSpec:
			declare(n.Names...)
		case *ast.Field:
			declare(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				assigned(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				assigned(n.Key, n.Value)
			}
		}
		return true
	})
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			for i, line := range strings.Split(comment.Text, "\n") {
				at := positions.Position(comment.Pos())
				at.Line += i
				for _, word := range wordInText.FindAllString(line, -1) {
					uses = append(uses, use{strings.ToLower(word), "a comment", text, at})
				}
			}
		}
	}
	return uses
}

func (r *retired) excepts(file, name string) bool {
	return slices.ContainsFunc(r.except, func(e string) bool { return e == name || strings.HasSuffix(e, "/") && strings.HasPrefix(file, e) })
}
