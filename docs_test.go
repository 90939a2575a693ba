package storageapi_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
)

// readmeWords is the maximum number of words of the README.
const readmeWords = 900

func TestReadmeIsShort(t *testing.T) {
	if n := len(strings.Fields(readFile(t, "README.md"))); n > readmeWords {
		t.Errorf("README.md has %d words, more than %d: move some to docs", n, readmeWords)
	}
}

// TestReadmeProgram runs the README's first program, sends the request of the first curl command,
// and interrupts the program, which must close its store. It then runs the program again, which
// must not create a second key, and ends it with SIGTERM.
func TestReadmeProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted")
	}
	readme := readFile(t, "README.md")
	source := regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```").FindStringSubmatch(readme)
	body := regexp.MustCompile(`curl -sS localhost:8080/v2/api-keys .* -d '(.*)'`).FindStringSubmatch(readme)
	if source == nil || body == nil {
		t.Fatal("README.md does not begin with a program and a curl")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()

	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte(strings.Replace(source[1], "127.0.0.1:8080", address, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var key string
	for _, end := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		run := exec.CommandContext(ctx, program)
		run.Dir = dir
		var failed bytes.Buffer
		run.Stderr = &failed
		out, err := run.StdoutPipe()
		if err == nil {
			err = run.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = run.Process.Kill() }()
		printed := bufio.NewReader(out)
		if key == "" {
			line, _ := printed.ReadString('\n')
			var found bool
			if key, found = strings.CutPrefix(strings.TrimSpace(line), "export KEY="); !found {
				t.Fatalf("it printed %q: %s", line, &failed)
			}
		}
		if status := createKey(ctx, t, address, key, body[1]); status != http.StatusCreated {
			t.Errorf("the curl is answered %d, want 201", status)
		}
		if err := run.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(printed); err != nil || len(rest) > 0 {
			t.Errorf("it went on to print %q, %v", rest, err)
		}
		if err := run.Wait(); err != nil {
			t.Fatalf("%v: %v: %s", end, err, &failed)
		}
	}

	// Verify marks the key as used; Close must write this last use to the file.
	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(dir, "storage.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	principal, err := api.Keys.Verify(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	used, err := api.Keys.Get(t.Context(), "acct_1", principal.KeyID)
	if err != nil || used.LastUsedAt.IsZero() {
		t.Errorf("the key was last used at %v, %v: the program did not close the file", used.LastUsedAt, err)
	}
	if page, err := api.Keys.List(t.Context(), "acct_1", apikeys.KeyQuery{Limit: 10}); err != nil || len(page.Keys) != 3 {
		t.Errorf("there are %d keys, %v: want the first and one of each curl", len(page.Keys), err)
	}
}

// On SIGTERM or an interrupt, the example programs must exit after waiting a limited time for
// running requests.
func TestExamples_InterruptOrSIGTERM_Exit(t *testing.T) {
	files := documents(t)
	for _, pattern := range []string{"examples/*/*.go", "examples/*/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	ends := 0
	for _, file := range files {
		text := readFile(t, file)
		for _, call := range regexp.MustCompile(`signal\.Notify(?:Context)?\(.*\)`).FindAllString(text, -1) {
			ends++
			if !strings.Contains(call, "os.Interrupt, syscall.SIGTERM)") {
				t.Errorf("%s: %s", file, call)
			}
		}
		if regexp.MustCompile(`\.Shutdown\(context\.(Background|TODO)\(\)\)`).MatchString(text) {
			t.Errorf("%s: a Shutdown without an end", file)
		}
	}
	if ends < 6 {
		t.Errorf("%d programs found", ends)
	}
}

// createKey sends the request, and retries until the server is listening.
func createKey(ctx context.Context, t *testing.T, address, key, body string) int {
	t.Helper()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v2/api-keys", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Api-Key", key)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = response.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			return response.StatusCode
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// snippets is the start of a program. TestDocSnippetsCompile appends the Go code of the documents.
const snippets = `package main

import (
	"context"
	"database/sql"
	"errors"
	"expvar"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/client"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

var (
	_ = errors.New
	_ = fmt.Sprint
	_ iter.Seq[int]
	_ slog.Level
	_ = log.Print
	_ observe.Observer
	_ os.Signal
	_ = signal.Notify
	_ = syscall.SIGTERM
	_ testing.TB
	_ time.Time
	_ apikeys.Key
	_ auth.Principal
	_ client.Key
	_ dashboard.Config
	_ scopes.Set
	_ signing.Secret
	_ store.Store
	_ = storetest.Run
)

var (
	ctx                                context.Context
	mux                                *http.ServeMux
	server                             *http.Server
	api                                *storageapi.Handler
	config                             storageapi.Config
	err                                error
	balance                            alerts.Amount
	used, limit, usedBytes, limitBytes int64
	listFiles                          alerts.FileSource
	authentications, attempts          *expvar.Map
	traceparentOf                      func(context.Context) string
	files                              []alerts.ExpiringFile
	id, eventID, account, url          string
	base64OfTheSecret                  string
	events                             []webhooks.EventType
	yesterday                          time.Time
	secrets                            []signing.Secret
	receive, listEnvironments, listTeams, listBucket, listBuckets http.Handler
	accountOf                          func(*http.Request) (string, error)
	sessions                           interface {
		Account(*http.Request) (string, error)
		IsAdmin(*http.Request) bool
	}
	mystore                            interface{ Open(string) store.Store }
	db                                 *sql.DB
)

func main() {}
`

// TestDocSnippetsCompile compiles the Go snippets of the documents. It skips snippets that use
// other modules, and those of the tutorial, which a test in promstorage runs.
func TestDocSnippetsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the compiler")
	}
	source := bytes.NewBufferString(snippets)
	n := 0
	for _, page := range documents(t) {
		if page == filepath.Join("docs", "tutorial.md") {
			continue
		}
		for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(readFile(t, page), -1) {
			switch code := block[1]; {
			case strings.HasPrefix(code, "package ") || strings.Contains(code, "postgres.") || strings.Contains(code, "promstorage.") || strings.Contains(code, "otelstorage.") || strings.Contains(code, "pgx."):
				continue
			case strings.HasPrefix(code, "func "), strings.HasPrefix(code, "type "):
				source.WriteString("\n// " + page + "\n" + code)
			default:
				source.WriteString("\n// " + page + "\nfunc _() {\n" + code + "}\n")
			}
			n++
		}
	}
	if n < 5 {
		t.Fatalf("%d blocks found", n)
	}
	file := filepath.Join(t.TempDir(), "snippets.go")
	if err := os.WriteFile(file, source.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("go", "build", "-gcflags=-e", "-o", os.DevNull, file).CombinedOutput()
	for message := range strings.Lines(string(out)) {
		at := regexp.MustCompile(`snippets\.go:(\d+):`).FindStringSubmatch(message)
		switch {
		case strings.Contains(message, "declared and not used"), strings.HasPrefix(message, "#"):
		case at == nil:
			t.Error(message)
		default:
			t.Errorf("%s\t%s", strings.TrimSpace(message), line(source.String(), at[1]))
		}
	}
}

// line returns the line of text with the given number.
func line(text, number string) string {
	n, _ := strconv.Atoi(number)
	return strings.Split(text, "\n")[n-1]
}

// TestDocLinks checks that the documents' links to files in the repository are valid.
func TestDocLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(readFile(t, page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(found[1], "#")
			target := filepath.Join(filepath.Dir(page), filepath.FromSlash(path))
			if path == "" {
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, found[1])
			} else if anchor != "" && !anchors(readFile(t, target))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, found[1])
			}
		}
	}
}

// anchors returns the anchors of a page's headings.
func anchors(page string) map[string]bool {
	all := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all[strings.ReplaceAll(text, " ", "-")] = true
	}
	return all
}

// documents returns the paths of the repository's Markdown pages.
func documents(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (entry.Name() == "node_modules" || entry.Name()[0] == '.'):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			pages = append(pages, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Programs that the docs run from a host's module must be in published modules, because hosts
// cannot fetch others.
func TestDocs_ProgramsRunByHosts_AreInPublishedModules(t *testing.T) {
	release := readFile(t, "release/make")
	published := regexp.MustCompile(`(?m)^published=\((.*)\)$`).FindStringSubmatch(release)
	if published == nil {
		t.Fatal("release/make names no published modules")
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		for _, match := range regexp.MustCompile(`go (?:run|install) github\.com/storageapi/storageapi/([\w/]+)`).FindAllStringSubmatch(readFile(t, page), -1) {
			found++
			if source := readFile(t, filepath.Join(match[1], "main.go")); !strings.Contains(source, "package main") {
				t.Errorf("%s: %s is no program", page, match[1])
			}
			module := match[1]
			for module != "." {
				if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
					break
				}
				module = filepath.Dir(module)
			}
			if module != "." && !strings.Contains(" "+published[1]+" ", " "+module+" ") {
				t.Errorf("%s: %s is in the module %s, which is not published", page, match[1], module)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d programs, want those for receiving and moving", found)
	}
}
