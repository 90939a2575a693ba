// The tests of this package stand on these fixtures, by the file that each is in:
//
//	A service, and what is asked of it
//	helpers_test.go        newService, newClocked: a service, with a clock that stands at noon
//	helpers_test.go        account, noon, anyURL, lowBalance, onBalance: what most tests need one of
//	helpers_test.go        subscribe, publish, deliveries, delivery: steps that must succeed
//	helpers_test.go        start: runs it until the test ends; internal/testlog collects what it logs
//	helpers_test.go        wantInvalid, noError, must: errors and values
//	failing_test.go        diary, day: what its hooks tell
//	event_test.go          encode, mustSeal, file: events as they are stored
//
//	Time that passes at once
//	bubble_test.go         bubble, inBubble: a service, its receivers and a clock that jumps to what happens next
//	bubble_test.go         hit, hits: the requests; internal/pipenet has the connections in memory
//
//	Receivers on this machine
//	receiver_test.go       receiver, newReceiver, newRawReceiver, newTCPReceiver: over TLS, raw over TLS, bare
//	receiver_test.go       reaching, attempt, try, ledger, unhurried: one attempt at them, and what is recorded of it
//	conn_test.go           newTalker: several responses on a connection
//	certificates_test.go   authority: their certificates
//	names_test.go          hosts, takeTurns, lookups, nameOf: the names that they have
//	client_bench_test.go   newSink: forgets what it gets
//	apart_test.go          sinks: those in a process of their own
//
//	What they answer
//	handlers_test.go       status, body: at once
//	handlers_test.go       sleeping, sleepingThen: after a while
//	handlers_test.go       failing: with a failure, so many times
//	handlers_test.go       outage: with failures, or not at all, until it is over
//	handlers_test.go       hangers: not at all, those that are slow
//	handlers_test.go       gauge: how many requests are under way
//	misbehave_test.go      say, drip, pour, hang, reset: bytes of a raw receiver
//
//	Stores
//	flaky_test.go          flaky: fails, or is ahead, as it is told
//
//	Many of them
//	storm_test.go          storm: many webhooks that hang, beside one that is well
//	bench_test.go          inGoroutines: work in so many goroutines
//
// What one test needs is beside that test.
package webhooks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// The index above must list the existing fixtures.
func TestFixtures_MatchIndex(t *testing.T) {
	source, err := os.ReadFile("fixtures_test.go")
	noError(t, err)
	index, _, _ := strings.Cut(string(source), "\npackage ")
	declared := make(map[string]map[string]bool) // by file
	entries := 0
	for line := range strings.Lines(index) {
		file, rest, _ := strings.Cut(strings.TrimPrefix(line, "//\t"), " ")
		names, _, found := strings.Cut(rest, ":")
		if !found || !strings.HasSuffix(file, "_test.go") {
			continue
		}
		if declared[file] == nil {
			declared[file] = declarations(t, file)
		}
		for name := range strings.SplitSeq(names, ",") {
			if entries++; !declared[file][strings.TrimSpace(name)] {
				t.Errorf("%s does not declare %q", file, strings.TrimSpace(name))
			}
		}
	}
	if entries < 40 {
		t.Errorf("the index has %d entries", entries)
	}
}

// declarations returns what a file declares at its top level, methods apart.
func declarations(tb testing.TB, file string) map[string]bool {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	noError(tb, err)
	names := make(map[string]bool)
	for _, declaration := range parsed.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}
