package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is answered into docs/http.md instead of comparing it")

const docs = "../../docs/http.md"

// TestDocs runs the shell blocks of docs/http.md in one shell, and compares the output of each with
// the block that follows it.
func TestDocs(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?").FindAllStringSubmatchIndex(string(text), -1)

	const mark = "\n@ end of block\n"
	script := "set -e\n" + serve(t) + "\n"
	for _, block := range blocks[1:] { // the first one starts the host
		script += string(text[block[2]:block[3]]) + "printf '" + strings.ReplaceAll(mark, "\n", `\n`) + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", script)
	shell.Dir = t.TempDir()
	printed, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, shorten(string(printed)))
	}
	answers := strings.Split(string(printed), mark)

	var written bytes.Buffer
	end := 0
	for i, block := range blocks {
		written.Write(text[end:block[3]])
		written.WriteString("```\n")
		end = block[1]
		if i == 0 {
			continue
		}
		if answer := shorten(answers[i-1]); answer != "" {
			fmt.Fprintf(&written, "\n```text\n%s\n```\n", answer)
		}
	}
	written.Write(text[end:])
	if *update {
		if err := os.WriteFile(docs, written.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), written.String()); diff != "" {
		t.Errorf("docs/http.md is not what is answered; go test ./examples/manage -run Docs -update (-docs +answered):\n%s", diff)
	}
}

// shorten removes the parts of a response that differ in each run.
func shorten(answer string) string {
	for _, rule := range []struct{ pattern, with string }{
		{`\b(key|wh|evt|rec)_[0-9A-Z]{26}\b`, "${1}_…"},
		{`\bsak_[0-9A-Za-z]{38}\b`, "sak_…"},
		{`\bsak_…[0-9A-Za-z]{4}"`, `sak_…k3Qz"`},
		{`\bwhsec_[0-9A-Za-z+/]{43}=`, "whsec_…"},
		{`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`, "20…Z"},
		{`"20\d\d-\d\d-\d\d"`, `"20…"`},
		{`"nextCursor":"[\w-]+"`, `"nextCursor":"…"`},
		{`"durationMs":[0-9.]+`, `"durationMs":…`},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:…"},
		{`"[\w-]{22}"`, `"…"`},
	} {
		answer = regexp.MustCompile(rule.pattern).ReplaceAllString(answer, rule.with)
	}
	return strings.TrimSpace(answer)
}

// serve starts the host of docs/http.md and returns the line of its output that readers copy.
func serve(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &lockedBuffer{}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, true) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("interrupted: %v", err)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "export ") && strings.HasSuffix(line, "\n") {
				return line
			}
		}
	}
	t.Fatalf("it printed no line to copy:\n%s", out)
	return ""
}

// A lockedBuffer can be written and read concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
