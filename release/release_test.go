// Package release_test releases a copy of this tree in isolation, and fetches the release like a
// user.
package release_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	root     = "github.com/storageapi/storageapi"
	postgres = root + "/store/postgres"
	otel     = root + "/otelstorage"
	prom     = root + "/promstorage"
)

// builds enables the tests that compile a whole release, which take minutes. CI sets it.
var builds = flag.Bool("release", false, "make releases and build hosts on them")

// TestRelease releases a copy of this tree as v0.1.0 and pushes it to a bare repository. Separate
// modules then fetch it: a host on a file, which is built and run, and hosts on PostgreSQL and with
// telemetry, which are type-checked.
func TestRelease(t *testing.T) {
	if !*builds {
		t.Skip("takes minutes: go test ./release -release")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the script is for bash")
	}
	b := newBench(t)
	b.copy()
	b.git("init", "-q", "--bare", b.origin)
	b.git("remote", "add", "origin", b.origin)
	b.git("push", "-q", "origin", "main")

	// A failed release must change nothing. The failures come after the check of the Go API, which
	// takes long, so only the release itself runs it.
	before := b.state()
	b.write("untidy.go", "package storageapi\n")
	b.refuses("the tree is not clean", "-checked", "v0.1.0")
	b.must(os.Remove(filepath.Join(b.tree, "untidy.go")))
	b.refuses("unknown option -signed", "-signed", "v0.1.0")
	b.write("release/apidiff", "#!/usr/bin/env bash\n")
	b.commit("no check of the Go API")
	b.git("config", "gpg.format", "ssh")
	b.git("config", "user.signingKey", filepath.Join(b.dir, "missing"))
	unchecked := b.state()
	b.refuses("v0.1.0 could not be made", "-checked", "-sign", "v0.1.0")
	if after := b.state(); after != unchecked {
		t.Fatalf("before:\n%s\nafter a signature that failed:\n%s", unchecked, after)
	}
	b.write("store/postgres/untidy_test.go", "package postgres\n\nimport _ \"example.com/unknown\"\n")
	b.commit("a package that no go.sum knows")
	unknown := b.state()
	b.refuses("the release could not be made", "-checked", "v0.1.0")
	if after := b.state(); after != unknown {
		t.Fatalf("before:\n%s\nafter a failure:\n%s", unknown, after)
	}
	b.git("reset", "-q", "--hard", "HEAD~2")
	key := filepath.Join(b.dir, "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Skipf("ssh-keygen: %v\n%s", err, out)
	}
	b.git("config", "user.signingKey", key)
	for _, version := range []string{"0.1.0", "v0.1", "v0.1.0-rc.1", "v01.0.0", "v0.0.0", "v2.0.0", "v0.1.0 v0.2.0"} {
		b.refuses("", append([]string{"-checked"}, strings.Fields(version)...)...)
	}
	if after := b.state(); after != before {
		t.Fatalf("before:\n%s\nafter refusals:\n%s", before, after)
	}

	out := b.release("v0.1.0")
	if want := "git push --atomic origin main v0.1.0 store/postgres/v0.1.0 otelstorage/v0.1.0 promstorage/v0.1.0\n"; !strings.HasSuffix(out, want) {
		t.Errorf("the script ends with %q, want the command %q", out, want)
	}
	if got := b.git("ls-remote", "--tags", "origin"); got != "" {
		t.Errorf("it pushed %s", got)
	}
	if got := b.git("status", "--porcelain"); got != "" {
		t.Errorf("the tree is not clean after it: %s", got)
	}
	for tag := range strings.FieldsSeq(b.git("tag")) {
		if !strings.Contains(b.git("cat-file", "tag", tag), "-----BEGIN SSH SIGNATURE-----") {
			t.Errorf("%s is not signed", tag)
		}
	}
	tags := b.git("tag")
	for file := range strings.FieldsSeq(b.git("ls-files", "*go.mod")) {
		module := strings.TrimSuffix(file, "go.mod")
		if !strings.Contains(tags, module+"v0.1.0\n") && !strings.Contains(module, "internal/") && !strings.Contains(module, "examples/") && module != "dashboard/e2e/" {
			t.Errorf("others can import %s, which release/make does not publish", module)
		}
		for _, published := range []string{root, postgres, otel, prom} {
			if strings.Contains(b.git("show", "v0.1.0:"+file), published+" v0.0.0") {
				t.Errorf("%s requires v0.0.0 of %s in the release", file, published)
			}
		}
	}
	if got := b.git("show", "v0.1.0:CHANGELOG.md"); !strings.Contains(got, "## Unreleased\n\n## 0.1.0 – 20") {
		t.Errorf("the changelog has no heading for it: %.500s", got)
	}
	if got := b.git("ls-tree", "--name-only", "v0.1.0:store/bolt/testdata"); !strings.Contains(got, ".db\n") || !strings.Contains(got, ".json\n") {
		t.Errorf("the release does not keep a file of its schema and what it holds: %q", got)
	}
	b.refuses("v0.1.0 exists already", "-checked", "v0.1.0")
	b.refuses("v0.0.9 is not above v0.1.0", "-checked", "v0.0.9")
	b.refuses("CHANGELOG.md says nothing under Unreleased", "-checked", "v0.1.1")

	b.git("push", "-q", "--atomic", "origin", "main", "v0.1.0", "store/postgres/v0.1.0", "otelstorage/v0.1.0", "promstorage/v0.1.0")
	b.fetch()
}

// A breaking change of the Go API must be reported, and must not be released under a version number
// that promises compatibility.
func TestAPIDiff(t *testing.T) {
	if !*builds {
		t.Skip("takes a minute: go test ./release -release")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the script is for bash")
	}
	b := newBench(t)
	script, err := os.ReadFile("apidiff")
	b.must(err)
	b.write("release/apidiff", string(script))
	b.write("go.mod", "module example.com/tiny\n\ngo 1.26.0\n")
	b.write("tiny.go", "package tiny\n\nfunc Kept() {}\nfunc Gone() {}\n")
	b.commit("the first")
	check := func(version, says string, succeeds bool) {
		t.Helper()
		out, err := b.script("apidiff", strings.Fields(version)...)
		if strings.Contains(out, "apidiff: not installed") && os.Getenv("CI") == "" {
			t.Skip(out)
		}
		if (err == nil) != succeeds || !strings.Contains(out, says) {
			t.Errorf("release/apidiff %s: %v, says %q, want %q", version, err, out, says)
		}
	}
	check("", "there is no release yet: wrote release/baseline", true)
	check("v0.1.0", "nothing of release/baseline is broken", true)
	b.write("tiny.go", "package tiny\n\nfunc Kept() {}\n")
	check("v0.1.0", "Gone: removed", true)
	b.git("checkout", "-q", "tiny.go")
	b.git("tag", "v0.1.0")
	b.write("more.go", "package tiny\n\nfunc More() {}\n")
	b.commit("more")
	check("v0.1.1", "nothing of v0.1.0 is broken", true)
	b.write("tiny.go", "package tiny\n\nfunc Kept() {}\n")
	b.commit("less")
	check("", "Gone: removed", true)
	check("v0.1.1", "Gone: removed", false)
	check("v0.2.0", "Gone: removed", true)
	b.git("tag", "v1.0.0", "v0.1.0")
	check("v1.1.0", "Gone: removed", false)
}

// fetch builds or type-checks hosts in separate modules that fetch the release.
func (b *bench) fetch() {
	b.Helper()
	typecheck, err := filepath.Abs("../.ci/typecheck.go")
	b.must(err)
	for name, host := range map[string]struct {
		source  string
		modules []string
	}{"file": {onFile, []string{root}}, "postgres": {onPostgres, []string{postgres}}, "telemetry": {withTelemetry, []string{otel, prom}}} {
		dir := filepath.Join(b.dir, name)
		b.must(os.Mkdir(dir, 0o700))
		b.must(os.WriteFile(filepath.Join(dir, "main.go"), []byte(host.source), 0o600))
		b.outside(dir, "mod", "init", "example.com/"+name)
		get := []string{"get"}
		for _, module := range host.modules {
			get = append(get, module+"@v0.1.0")
		}
		if out, err := b.tryOutside(dir, get...); err != nil {
			for _, sign := range []string{"dial tcp", "i/o timeout", "no such host", "Service Unavailable", "connection refused"} {
				if strings.Contains(out, sign) && os.Getenv("CI") == "" {
					b.Skipf("the dependencies cannot be had from here: %s", out)
				}
			}
			b.Fatalf("go %s: %v\n%s", strings.Join(get, " "), err, out)
		}
		b.outside(dir, "mod", "tidy")
		if name == "file" {
			b.outside(dir, "build", "-o", "host", ".")
		} else { // compiling their dependencies takes a minute
			b.outside(dir, "run", typecheck, runtime.GOOS)
		}
		list := b.outside(dir, "list", "-m", "all")
		for _, module := range append(host.modules, root) {
			if !strings.Contains(list, "\n"+module+" v0.1.0\n") {
				b.Errorf("%s: built of\n%s\nwant %s v0.1.0", name, list, module)
			}
		}
		if strings.Contains(list, "=>") {
			b.Errorf("%s: something is replaced:\n%s", name, list)
		}
		for _, module := range host.modules {
			licensed := b.outside(dir, "list", "-m", "-f", "{{.Dir}}", module)
			if _, err := os.Stat(filepath.Join(strings.TrimSpace(licensed), "LICENSE")); err != nil {
				b.Errorf("%s comes without its licence: %v", module, err)
			}
		}
	}
	host := exec.Command(filepath.Join(b.dir, "file", "host"))
	host.Dir = b.T.TempDir()
	if out, err := host.CombinedOutput(); err != nil || string(out) != "204\n" {
		b.Errorf("the host printed %q, %v", out, err)
	}
}

const onFile = `package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

func main() {
	api, err := storageapi.NewHandler(storageapi.Config{Path: "storage.db"})
	if err != nil {
		panic(err)
	}
	defer api.Close()
	_, token, err := api.Keys.Create(context.Background(), "acct_1", apikeys.CreateParams{Name: "first", Scopes: scopes.Specified()})
	if err != nil {
		panic(err)
	}
	files := api.Auth.Require(scopes.FilesRead, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	request, answer := httptest.NewRequest("GET", "/v2/files", nil), httptest.NewRecorder()
	request.Header.Set("Api-Key", token.Reveal())
	files.ServeHTTP(answer, request)
	fmt.Println(answer.Code)
}
`

const onPostgres = `package main

import (
	"context"
	"net/http"
	"os"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/store/postgres"
)

func main() {
	store, err := postgres.Open(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
	if err != nil {
		panic(err)
	}
	panic(http.ListenAndServe(":8080", api))
}
`

const withTelemetry = `package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/otelstorage"
	"github.com/storageapi/storageapi/promstorage"
)

func main() {
	metrics := promstorage.New()
	telemetry, err := otelstorage.New(otelstorage.Config{})
	if err != nil {
		panic(err)
	}
	api, err := storageapi.NewHandler(storageapi.Config{Path: "storage.db", Observe: observe.Join(metrics.Observer(), telemetry.Observer())})
	if err != nil {
		panic(err)
	}
	metrics.SetStats(api.Webhooks.Stats)
	prometheus.MustRegister(metrics)
}
`
