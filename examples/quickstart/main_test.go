package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
)

func TestQuickstart(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, false); err != nil {
		t.Fatalf("%v, after:\n%s", err, &out)
	}
	for _, eventType := range alerts.EventTypes() {
		if want := `"type":"` + string(eventType) + `"`; strings.Count(out.String(), want) != 1 {
			t.Errorf("%s was not received once", eventType)
		}
	}
	t.Log("\n" + out.String())
}

// TestServe runs the printed curl lines.
func TestServe(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		skip(t, "curl is not installed: apt-get install curl")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &lockedBuffer{}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, true) }()

	script := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(script, "-X DELETE"); {
		if time.Now().After(deadline) {
			t.Fatalf("no curl lines in:\n%s", out)
		}
		select {
		case err := <-ended:
			t.Fatalf("ended with %v after:\n%s", err, out)
		case <-time.After(10 * time.Millisecond):
		}
		script = "set -e\n"
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "curl ") {
				script += strings.TrimSuffix(line, "\n") + "\necho\n"
			}
		}
	}
	answers, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, answers)
	}
	// The expected start of the response to each line.
	want := []string{
		`{"data":[{"name":"production"}`, `{"name":"testing"}`, `{"id":"key_`, `{"data":[{"id":"key_`,
		`{"id":"wh_`, `{"data":[{"id":"wh_`, `204`,
	}
	var got []string
	for line := range strings.Lines(string(answers)) {
		if line = strings.TrimSpace(line); line != "" {
			n := len(got)
			if n < len(want) && strings.HasPrefix(line, want[n]) {
				line = want[n]
			}
			got = append(got, line)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	checkSettings(t, out.String())
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// checkSettings logs in at the printed address.
func checkSettings(t *testing.T, out string) {
	t.Helper()
	_, rest, _ := strings.Cut(out, "See it in a browser: ")
	address, _, _ := strings.Cut(rest, "\n")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	read := func(response *http.Response, err error) (string, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.Request.URL.Path, string(body)
	}
	if path, body := read(client.Get(address)); path != "/login" || !strings.Contains(body, "Log in as acct_1") {
		t.Fatalf("%q leads to %s: %s", address, path, body)
	}
	if path, body := read(client.PostForm(strings.Replace(address, "/settings/", "/login", 1), nil)); path != "/settings/api-keys" || !strings.Contains(body, "bootstrap") {
		t.Errorf("the login leads to %s: %s", path, body)
	}
}

func skip(t *testing.T, why string) {
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

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
