package promstorage_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test follows docs/tutorial.md like a reader. Each step changes the README's program, builds
// it, starts it on the same file, and runs the page's commands. The commands or the receiver must
// print every line of output on the page. The test is in this module because the last step needs
// it.
func TestTutorial_EachStep_PrintsDocumentedOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds five programs")
	}
	for _, tool := range []string{"sh", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil || runtime.GOOS == "windows" {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(tool, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	guide := newGuide(ctx, t)
	guide.build("receiver", "github.com/storageapi/storageapi/examples/receiver")
	steps := strings.Split(guide.read("../docs/tutorial.md"), "\n## ")[1:]
	if len(steps) != 5 {
		t.Fatalf("the tutorial has %d steps, want 5", len(steps))
	}
	for _, step := range steps {
		guide.take(step)
	}
}

// A guide follows the tutorial like a reader.
type guide struct {
	*testing.T
	ctx     context.Context
	dir     string
	ports   *strings.Replacer // replaces the page's ports with free ones
	program string
	key     string // printed at the first start
}

func newGuide(ctx context.Context, t *testing.T) *guide {
	t.Helper()
	g := &guide{T: t, ctx: ctx, dir: t.TempDir()}
	var ports []string
	for _, port := range []string{"8080", "8081", "8443"} {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = free.Close() }() // keep all listeners open, so that all ports differ
		_, other, _ := net.SplitHostPort(free.Addr().String())
		ports = append(ports, ":"+port, ":"+other)
	}
	g.ports = strings.NewReplacer(ports...)
	source := regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```").FindStringSubmatch(g.read("../README.md"))
	if source == nil {
		t.Fatal("README.md has no program")
	}
	g.program = g.ports.Replace(source[1])
	return g
}

func (g *guide) read(path string) string {
	g.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		g.Fatal(err)
	}
	return string(text)
}

func (g *guide) build(name, source string) {
	g.Helper()
	if out, err := exec.CommandContext(g.ctx, "go", "build", "-o", filepath.Join(g.dir, name), source).CombinedOutput(); err != nil {
		g.Fatalf("go build %s: %v\n%s", name, err, out)
	}
}

// take carries out a step: it changes the program, starts it, and runs the step's commands.
// Commands that use openssl run before the host starts.
func (g *guide) take(step string) {
	g.Helper()
	title, _, _ := strings.Cut(step, "\n")
	var before, commands string
	var want []string
	for _, block := range regexp.MustCompile("(?ms)^```(go|sh|text)\n(.*?)^```").FindAllStringSubmatch(g.ports.Replace(step), -1) {
		switch language, text := block[1], block[2]; {
		case language == "go":
			g.change(text)
		case language == "sh" && strings.Contains(text, "openssl req"):
			before += text
		case language == "sh":
			commands += inBackground(text)
		case !strings.Contains(text, "go get"): // the go.mod of this module replaces go get
			want = append(want, strings.Split(strings.TrimSpace(text), "\n")...)
		}
	}
	if commands == "" || len(want) == 0 && !strings.HasPrefix(title, "1") {
		g.Fatalf("%s: there are no commands or no output", title)
	}
	g.shell(before)
	if err := os.WriteFile(filepath.Join(g.dir, "main.go"), []byte(g.program), 0o600); err != nil {
		g.Fatal(err)
	}
	g.build("host", filepath.Join(g.dir, "main.go"))
	stop := g.start()
	defer stop()
	printed := g.shell(commands + "\nwait_for_receiver() { for i in $(seq 100); do grep -q limit_reached receiver.log && break; sleep 0.1; done; }\n" +
		"if [ -f receiver.log ]; then wait_for_receiver; cat receiver.log; kill $!; fi 2>/dev/null\nrm -f receiver.log\n")
	for _, line := range want {
		if !regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")).MatchString(printed) {
			g.Errorf("%s: there is no line %s in:\n%s", title, line, printed)
		}
	}
}

// inBackground runs the receiver in the background, as in another terminal, and waits until it
// listens.
func inBackground(commands string) string {
	return regexp.MustCompile(`(?m)^go run \S+/receiver -addr (\S+)$`).ReplaceAllString(commands,
		"./receiver -addr $1 >receiver.log 2>&1 &\nuntil curl -sk -o /dev/null https://$1/; do sleep 0.05; done")
}

// change changes the program. It replaces the call of NewHandler, and adds all other code after the
// last route.
func (g *guide) change(code string) {
	g.Helper()
	call := regexp.MustCompile(`(?s)\n\t?api, err := storageapi\.NewHandler\(.*?\}\)\n`)
	const end = "\tserver := &http.Server{"
	before := g.program
	if strings.Contains(code, "storageapi.NewHandler(") {
		g.program = call.ReplaceAllLiteralString(g.program, "\n"+code)
	} else {
		g.program = strings.Replace(g.program, end, code+end, 1)
	}
	if g.program == before {
		g.Fatalf("there is no place for:\n%s", code)
	}
	for name, path := range map[string]string{
		"atomic.": "sync/atomic", "auth.": "github.com/storageapi/storageapi/auth", "dashboard.": "github.com/storageapi/storageapi/dashboard", "io.": "io",
		"prometheus.": "github.com/prometheus/client_golang/prometheus", "promhttp.": "github.com/prometheus/client_golang/prometheus/promhttp",
		"promstorage.": "github.com/storageapi/storageapi/promstorage", "scopes.": "github.com/storageapi/storageapi/scopes", "webhooks.": "github.com/storageapi/storageapi/webhooks",
	} {
		used := slices.Contains(regexp.MustCompile(`\b[a-z]+\.`).FindAllString(code, -1), name)
		if line := "\t\"" + path + "\"\n"; used && !strings.Contains(g.program, line) {
			g.program = strings.Replace(g.program, "import (\n", "import (\n"+line, 1)
		}
	}
}

// start starts the host, which prints a key at its first start. stop ends the host.
func (g *guide) start() (stop func()) {
	g.Helper()
	host := exec.CommandContext(g.ctx, filepath.Join(g.dir, "host"))
	host.Dir = g.dir
	host.Env = append(os.Environ(), "PASSWORD=secret", "SSL_CERT_FILE=cert.pem")
	var failed bytes.Buffer
	host.Stderr = &failed
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		g.Fatal(err)
	}
	if g.key == "" {
		line, _ := bufio.NewReader(out).ReadString('\n')
		g.key = strings.TrimPrefix(strings.TrimSpace(line), "export KEY=")
	}
	return func() {
		if err := host.Process.Signal(syscall.SIGTERM); err != nil {
			g.Fatal(err)
		}
		if err := host.Wait(); err != nil {
			g.Fatalf("the host ended with %v: %s", err, &failed)
		}
	}
}

func (g *guide) shell(commands string) string {
	g.Helper()
	listening := g.ports.Replace("until curl -s -o /dev/null localhost:8080; do sleep 0.05; done\n")
	if strings.Contains(commands, "openssl") || commands == "" {
		listening = ""
	}
	shell := exec.CommandContext(g.ctx, "sh", "-c", listening+commands)
	shell.Dir = g.dir
	shell.Env = append(os.Environ(), "KEY="+g.key)
	out, err := shell.CombinedOutput()
	if err != nil {
		g.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}
