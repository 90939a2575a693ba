package interop

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// example returns the only example of docs/events.md in that language that has all the texts.
func example(t *testing.T, language string, texts ...string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(page, -1) {
		complete := true
		for _, text := range texts {
			complete = complete && bytes.Contains(match[1], []byte(text))
		}
		if complete {
			found = append(found, string(match[1]))
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/events.md has %d examples in %s with %q, want 1", len(found), language, texts)
	}
	return found[0]
}

// delivered are requests as a receiver with that secret gets them, and whether they are genuine.
func delivered(secret signing.Secret) map[string]struct {
	header, body string
	genuine      bool
} {
	const body = `{"id":"evt_1","name":"Zürich"}` + "\n"
	own, other := signing.Signature(secret, []byte(body)), signing.Signature(signing.NewSecret(), []byte(body))
	return map[string]struct {
		header, body string
		genuine      bool
	}{
		"one secret":                   {own, body, true},
		"rotation, still the previous": {other + "," + own, body, true},
		"rotation, already the next":   {own + "," + other, body, true},
		"a space after the comma":      {other + ", " + own, body, true},
		"another secret":               {other, body, false},
		"two other secrets":            {other + "," + other, body, false},
		"another body":                 {own, body + " ", false},
		"upper case":                   {strings.ToUpper(own), body, false},
		"cut short":                    {own[:63], body, false},
		"values without a comma":       {own + other, body, false},
		"not ASCII":                    {"ä," + own[1:], body, false},
		"only a comma":                 {",", body, false},
		"empty":                        {"", body, false},
	}
}

func TestShellReceiver_OfTheDocs_AcceptsGenuineRequestsOnly(t *testing.T) {
	script := example(t, "sh", "openssl", "X_SERVICE_SIGNATURE")
	secret := signing.NewSecret()
	for name, request := range delivered(secret) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "body.json"), []byte(request.body), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "sh", "-c", script)
		command.Dir = dir
		command.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret.Reveal(), "X_SERVICE_SIGNATURE="+request.header)
		got, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, got)
		}
		if want := map[bool]string{true: "accepted\n", false: "rejected\n"}[request.genuine]; string(got) != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestReceivers_OfTheDocs_AcceptGenuineRequestsOnly(t *testing.T) {
	for _, receiver := range []struct{ language, program, file string }{
		{"python", "python3", "receiver.py"},
		{"js", "node", "receiver.mjs"},
	} {
		t.Run(receiver.language, func(t *testing.T) {
			program, err := exec.LookPath(receiver.program)
			if err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			free, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := free.Addr().String()
			_ = free.Close()
			_, port, _ := net.SplitHostPort(address)
			source := strings.Replace(example(t, receiver.language, "8081"), "8081", port, 1)
			file := filepath.Join(t.TempDir(), receiver.file)
			if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			secret := signing.NewSecret()
			command := exec.Command(program, file)
			command.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret.Reveal())
			var log bytes.Buffer
			command.Stdout, command.Stderr = &log, &log
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = command.Process.Kill()
				_ = command.Wait()
				if t.Failed() {
					t.Logf("%s", &log)
				}
			})
			for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				conn, err := net.Dial("tcp", address)
				if err == nil {
					_ = conn.Close()
					break
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("the receiver does not listen: %v", err)
				}
			}
			for name, request := range delivered(secret) {
				got, err := status(t, "http://"+address, request.header, request.body)
				if want := map[bool]int{true: http.StatusNoContent, false: http.StatusUnauthorized}[request.genuine]; err != nil || got != want {
					t.Errorf("%s: got %d (%v), want %d", name, got, err, want)
				}
			}
		})
	}
}

// status posts a body and returns the status of the response.
func status(t *testing.T, url, signature, body string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if signature != "" {
		request.Header.Set("X-Service-Signature", signature)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("post: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}
