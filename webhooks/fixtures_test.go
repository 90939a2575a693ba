// Shared fixtures of this package's tests, by file:
//
//	A service and its calls
//	helpers_test.go        newService, newClocked: a service, with a clock stopped at noon
//	helpers_test.go        account, noon, anyURL, lowBalance, onBalance: values that most tests need
//	helpers_test.go        subscribe, publish, deliveries, delivery: steps that must succeed
//	helpers_test.go        start: runs a service during the test; internal/testlog collects the log
//	helpers_test.go        wantInvalid, noError, must: errors and values
//	failing_test.go        diary, day: the calls of an Observer, and 24 hours
//	event_test.go          encode, mustSeal, file: events as they are stored
//
//	Virtual time
//	bubble_test.go         bubble, inBubble: a service, its receivers and a clock that jumps to the next event
//	bubble_test.go         hit, hits: received requests; internal/pipenet connects in memory
//
//	Receivers on this machine
//	receiver_test.go       receiver, newReceiver, newRawReceiver, newTCPReceiver: over TLS, raw over TLS, bare
//	receiver_test.go       reaching, attempt, try, ledger, unhurried: one attempt, and its recorded result
//	conn_test.go           newTalker: several responses on a connection
//	certificates_test.go   authority: signs the receivers' certificates
//	names_test.go          hosts, takeTurns, lookups, nameOf: the receivers' host names
//	client_bench_test.go   newSink: discards requests
//	apart_test.go          sinks: receivers in a separate process
//
//	Responses of receivers
//	handlers_test.go       status, body: respond at once
//	handlers_test.go       sleeping, sleepingThen: respond after a delay
//	handlers_test.go       failing: fails n times, then succeeds
//	handlers_test.go       outage: fails or hangs until the outage is over
//	handlers_test.go       hangers: can stop responding to hosts named slow…
//	handlers_test.go       gauge: counts requests in flight
//	misbehave_test.go      say, drip, pour, hang, reset: responses of a raw receiver
//
//	Stores
//	flaky_test.go          flaky: fails, or has its clock ahead, on demand
//
//	Load
//	storm_test.go          storm: many hanging webhooks and a healthy one
//	bench_test.go          inGoroutines: runs work in several goroutines
//
// Helpers of a single test are next to it.
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

// declarations returns the names that a file declares at top level, without methods.
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
