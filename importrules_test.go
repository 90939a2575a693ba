package storageapi_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/storageapi/storageapi"

// importRules lists the packages of this and other modules that each package may import, except in
// tests. The standard library is always allowed.
var importRules = map[string][]string{
	".":                {"alerts", "apierr", "internal/fields", "internal/listed", "audit", "observe", "apikeys", "auth", "scopes", "signing", "store", "webhooks", "internal/httpapi", "store/bolt", "internal/id", "store/driver", "store/transfer"},
	"store/capability": {},

	"scopes":   {},
	"signing":  {},
	"audit":    {},
	"observe":  {"audit"},
	"auth":     {"apierr", "observe", "scopes", "internal/lasting", "internal/observing"},
	"apierr":   {},
	"apikeys":  {"apierr", "store/driver", "audit", "observe", "internal/fields", "internal/listed", "internal/observing", "auth", "scopes", "internal/id", "internal/input"},
	"webhooks": {"apierr", "store/driver", "audit", "observe", "internal/fields", "internal/listed", "internal/observing", "auth", "scopes", "signing", "internal/clock", "internal/id", "internal/input", "internal/jitter", "internal/testhook", "internal/jsontext", "internal/hostcode", "webhooks/internal/outbound", "webhooks/internal/scheduler", "webhooks/internal/testgate"},

	"secretscanning": {"apierr", "apikeys"},

	// Programs that import only the client must not depend on the service.
	"client": {},
	"cli":    {"client", "internal/pipenet", "signing", ".", "store", "store/bolt", "store/bolt/boltops", "store/transfer"},

	"alerts":                      {"apierr", "store/driver", "observe", "scopes", "webhooks", "internal/hostcode", "internal/id", "internal/input", "internal/jsontext", "alerts/internal/alerting"},
	"alerts/internal/alerting":    {},
	"webhooks/internal/outbound":  {"code.dny.dev/ssrf"},
	"webhooks/internal/scheduler": {"internal/heap", "internal/jitter"},
	"webhooks/internal/testgate":  {"webhooks/internal/outbound"},

	"store":                           {"store/driver", "auth", "audit", "store/transfer"},
	"store/driver":                    {"audit", "auth", "internal/fields", "observe", "scopes", "signing", "store/capability"},
	"store/transfer":                  {"store/driver", "internal/fields", "internal/listed", "store/capability", "audit"},
	"store/memory":                    {"apierr", "store/driver", "internal/fields", "internal/listed", "store/capability", "audit", "auth", "store", "internal/clock", "internal/cursor", "store/transfer"},
	"store/bolt":                      {"apierr", "store/driver", "internal/fields", "internal/listed", "store/capability", "audit", "observe", "internal/observing", "auth", "scopes", "signing", "store", "store/bolt/internal/alertcache", "store/bolt/internal/auditlog", "store/bolt/internal/eventlog", "store/bolt/internal/feed", "store/bolt/internal/files", "store/bolt/internal/groupcommit", "store/bolt/internal/mirror", "store/bolt/internal/pagefile", "store/bolt/internal/parking", "store/bolt/internal/record", "store/bolt/internal/requests", "store/bolt/internal/rows", "store/bolt/internal/schema", "internal/boltoption", "internal/clock", "internal/cursor", "store/transfer", "go.etcd.io/bbolt", "go.etcd.io/bbolt/errors"},
	"store/bolt/internal/alertcache":  {"auth", "store", "store/driver", "store/bolt/internal/record"},
	"store/bolt/internal/auditlog":    {"audit", "store/bolt/internal/groupcommit", "store/bolt/internal/record", "store/bolt/internal/rows", "store/bolt/internal/schema", "internal/cursor", "go.etcd.io/bbolt"},
	"store/bolt/internal/eventlog":    {"apierr", "store/driver", "store/bolt/internal/groupcommit", "store/bolt/internal/record", "store/bolt/internal/rows", "store/bolt/internal/schema", "internal/clock", "internal/cursor", "store/transfer", "go.etcd.io/bbolt"},
	"store/bolt/internal/record":      {"store/driver", "internal/fields", "internal/listed", "audit", "scopes", "signing", "internal/clock", "github.com/oklog/ulid/v2"},
	"store/bolt/internal/feed":        {"store/driver", "store/bolt/internal/eventlog"},
	"store/bolt/internal/files":       {},
	"store/bolt/internal/mirror":      {},
	"store/bolt/internal/pagefile":    {"go.etcd.io/bbolt", "go.etcd.io/bbolt/errors"},
	"store/bolt/internal/parking":     {"store/bolt/internal/groupcommit", "store/bolt/internal/pagefile", "store/bolt/internal/rows", "store/bolt/internal/schema", "go.etcd.io/bbolt", "go.etcd.io/bbolt/errors"},
	"store/bolt/internal/requests":    {"apierr", "store/driver", "store/bolt/internal/groupcommit", "store/bolt/internal/mirror", "store/bolt/internal/record", "store/bolt/internal/rows", "store/bolt/internal/schema", "go.etcd.io/bbolt"},
	"store/bolt/internal/rows":        {"go.etcd.io/bbolt"},
	"store/bolt/internal/schema":      {"store/driver", "store/bolt/internal/files", "store/bolt/internal/pagefile", "go.etcd.io/bbolt"},
	"store/bolt/boltops":              {"apierr", "store/driver", "audit", "signing", "store/bolt", "store/bolt/internal/auditlog", "store/bolt/internal/eventlog", "store/bolt/internal/files", "store/bolt/internal/pagefile", "store/bolt/internal/record", "store/bolt/internal/rows", "store/bolt/internal/schema", "internal/cursor", "store/transfer", "go.etcd.io/bbolt"},
	"store/bolt/internal/groupcommit": {"auth", "store", "go.etcd.io/bbolt", "go.etcd.io/bbolt/errors"},
	"store/storetest":                 {"apierr", "store/driver", "audit", "auth", "scopes", "signing", "store", "store/transfer", "github.com/google/go-cmp/cmp", "github.com/google/go-cmp/cmp/cmpopts"},

	// Hosts must be able to import the helpers for their tests.
	"storageapitest": {".", "apikeys", "auth", "scopes", "signing", "store/memory", "webhooks", "internal/pipenet", "internal/testbubble", "internal/testhook"},

	// The dashboard uses the packages that hosts use.
	"dashboard": {"apierr", "alerts", "internal/fields", "internal/listed", "audit", ".", "apikeys", "auth", "observe", "scopes", "signing", "webhooks", "internal/arrival", "internal/lasting"},

	"internal/arrival":    {},
	"internal/boltfault":  {"internal/boltoption", "go.etcd.io/bbolt"},
	"internal/boltoption": {"observe", "signing", "go.etcd.io/bbolt"},
	"internal/clock":      {},
	"internal/crash":      {},
	"internal/cursor":     {},
	"internal/httpapi":    {"apierr", "alerts", "internal/fields", "internal/listed", "audit", "apikeys", "auth", "scopes", "signing", "webhooks", "internal/arrival", "internal/id", "internal/input", "internal/lasting"},
	"internal/fields":     {},
	"internal/listed":     {"audit", "auth", "internal/fields", "scopes", "signing", "store/driver"},
	"internal/heap":       {},
	"internal/hostcode":   {},
	"internal/id":         {"github.com/oklog/ulid/v2"},
	"internal/input":      {"apierr"},
	"internal/jitter":     {},
	"internal/jsontext":   {},
	"internal/lasting":    {},
	"internal/observing":  {"audit", "observe"},

	"internal/pipenet":    {},
	"internal/simulation": {},
	"internal/testclock":  {},
	"internal/testbubble": {},
	"internal/testdir":    {},
	"internal/testlog":    {},
	"internal/testhook":   {},

	// The load program and the examples import only packages that hosts can import.
	"internal/load": {"apierr", "alerts", ".", "apikeys", "observe", "scopes", "webhooks"},
	"examples/*":    {"apierr", "alerts", "audit", "observe", ".", "apikeys", "auth", "cli", "client", "dashboard", "scopes", "signing", "store", "store/bolt", "store/memory", "webhooks"},
}

// TestImports checks the imports of this module's packages. Nested modules have their own rules.
func TestImports(t *testing.T) {
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && isApart(file, entry.Name()):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go"):
			checkImports(t, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isApart reports whether a directory contains no packages of this module.
func isApart(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil || name == "testdata" || name == "node_modules" || name[0] == '.' || name[0] == '_'
}

func checkImports(t *testing.T, file string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	dir := filepath.ToSlash(filepath.Dir(file))
	allowed, ok := importRules[dir]
	if !ok && path.Dir(dir) == "examples" {
		allowed, ok = importRules["examples/*"]
	}
	if !ok {
		t.Errorf("%s: no rule says what %s may import", file, dir)
		return
	}
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") {
			continue // the standard library
		}
		if name == module {
			name = "."
		}
		if !slices.Contains(allowed, strings.TrimPrefix(name, module+"/")) {
			t.Errorf("%s: %s must not import %s", file, dir, name)
		}
	}
}
