package interop

import (
	"bytes"
	"errors"
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

// example returns the only code block of docs/receivers.md that is in the language and contains all
// texts.
func example(t *testing.T, language string, texts ...string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/receivers.md")
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
		t.Fatalf("docs/receivers.md has %d examples in %s with %q, want 1", len(found), language, texts)
	}
	return found[0]
}

// delivered returns signed and forged requests, and whether each is genuine.
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

// receivers lists the examples of docs/receivers.md that serve HTTP. Each runs on its own port.
var receivers = []struct {
	name, language, text string

	file    string   // file name of the example
	shared  string   // file name of the language's verification function, which the example imports
	serve   string   // code appended to an example that is not a server; PORT is replaced
	command []string // command that runs the file; PORT is replaced
	needs   []string // arguments with which the program succeeds only if the framework is installed
}{
	{
		name: "Express", language: "js", text: "express.raw", file: "receiver.mjs", shared: "verify.mjs",
		command: []string{"node", "receiver.mjs"}, needs: []string{"--input-type=module", "-e", "import 'express'"},
	},
	{
		name: "Next.js", language: "js", text: "arrayBuffer", file: "receiver.mjs", shared: "verify.mjs",
		serve: `
import { createServer } from "node:http";
import { Readable } from "node:stream";
createServer(async (incoming, outgoing) => { // calls the route as Next.js does
  const init = { method: "POST", headers: incoming.headers, body: Readable.toWeb(incoming), duplex: "half" };
  outgoing.writeHead((await POST(new Request("http://localhost/webhook", init))).status).end();
}).listen(PORT, "127.0.0.1");
`,
		command: []string{"node", "receiver.mjs"},
	},
	{
		name: "FastAPI", language: "python", text: "FastAPI()", file: "receiver.py", shared: "verify.py",
		command: []string{"python3", "-m", "uvicorn", "--log-level", "warning", "--port", "PORT", "receiver:app"},
		needs:   []string{"-c", "import fastapi, uvicorn"},
	},
	{
		name: "Flask", language: "python", text: "Flask(__name__)", file: "receiver.py", shared: "verify.py",
		command: []string{"python3", "-m", "flask", "--app", "receiver", "run", "--port", "PORT"},
		needs:   []string{"-c", "import flask"},
	},
	{
		name: "Python without a framework", language: "python", text: "def verified", file: "verify.py",
		serve: `
from http.server import BaseHTTPRequestHandler, HTTPServer
class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(204 if verified(self.headers.get("X-Service-Signature"), body) else 401)
        self.end_headers()
HTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
`,
		command: []string{"python3", "verify.py"},
	},
	{
		name: "Ruby", language: "ruby", text: "rack.input", file: "receiver.rb",
		serve: `
require "socket"
require "stringio"
server = TCPServer.new("127.0.0.1", PORT)
while (client = server.accept) # a Rack server of the smallest kind
  next client.close unless client.gets
  env = {}
  while (line = client.gets.chomp) != ""
    name, value = line.b.split(": ", 2)
    env["HTTP_" + name.upcase.tr("-", "_")] = value
  end
  env["rack.input"] = StringIO.new(client.read(env["HTTP_CONTENT_LENGTH"].to_i) || "".b)
  client.write "HTTP/1.1 #{App.call(env)[0]} OK\r\nConnection: close\r\n\r\n"
  client.close
end
`,
		command: []string{"ruby", "receiver.rb"},
	},
	{
		name: "PHP", language: "php", text: "php://input", file: "receiver.php",
		command: []string{"php", "-S", "127.0.0.1:PORT", "receiver.php"},
	},
	{
		name: "Java", language: "java", text: "HttpServer", file: "Receiver.java", command: []string{"java", "Receiver.java"},
	},
}

func TestReceivers_OfTheDocs_AcceptGenuineRequestsOnly(t *testing.T) {
	for _, receiver := range receivers {
		t.Run(receiver.name, func(t *testing.T) {
			t.Parallel()
			program := installed(t, receiver.command[0], receiver.needs)
			port := freePort(t)
			here := strings.NewReplacer("8081", port, "PORT", port)
			dir, secret := t.TempDir(), signing.NewSecret()
			packages, err := filepath.Abs("node_modules")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			write := func(file, source string) {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(here.Replace(source)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(receiver.file, example(t, receiver.language, receiver.text)+receiver.serve)
			if receiver.shared != "" {
				write(receiver.shared, example(t, receiver.language, map[string]string{"js": "timingSafeEqual", "python": "def verified"}[receiver.language]))
			}
			address := "127.0.0.1:" + port
			arguments := strings.Fields(here.Replace(strings.Join(receiver.command[1:], " ")))
			start(t, dir, address, secret, program, arguments)
			for name, request := range delivered(secret) {
				got, err := status(t, "http://"+address+"/webhook", request.header, request.body)
				if want := map[bool]int{true: http.StatusNoContent, false: http.StatusUnauthorized}[request.genuine]; err != nil || got != want {
					t.Errorf("%s: got %d (%v), want %d", name, got, err, want)
				}
			}
		})
	}
}

// installed returns the path of a program that exits successfully when run with the given
// arguments. Without such a program, installed skips the test, or fails it in CI, where .ci/run
// installs all programs. For Python it also tries /usr/bin/python3, because another python3 may not
// find Debian's packages.
func installed(t *testing.T, name string, arguments []string) string {
	t.Helper()
	candidates := []string{name}
	if name == "python3" {
		candidates = append(candidates, "/usr/bin/python3")
	}
	var failed error
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err == nil && arguments != nil {
			err = exec.CommandContext(t.Context(), path, arguments...).Run()
		}
		if err == nil {
			return path
		}
		failed = errors.Join(failed, err)
	}
	if os.Getenv("CI") != "" {
		t.Fatal(failed)
	}
	t.Skip(failed)
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = free.Close() }()
	_, port, err := net.SplitHostPort(free.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// start runs a receiver until the test ends, and returns once it listens.
func start(t *testing.T, dir, address string, secret signing.Secret, program string, arguments []string) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Dir = dir
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
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("the receiver does not listen: %v", err)
		}
	}
}

// status posts a body and returns the status of the response.
func status(t *testing.T, url, signature, body string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
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
