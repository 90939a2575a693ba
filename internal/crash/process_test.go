//go:build unix

package crash_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is a running host.
type process struct {
	testing.TB
	cmd    *exec.Cmd
	stdin  io.Closer
	client *http.Client
	ready  chan struct{} // closed when it serves or is dead
	dead   chan struct{} // closed when it is dead

	// Read these after ready is closed.
	url  string
	keys map[string]string // keys of the accounts to bootstrap, by account

	// Read these after dead is closed.
	log    bytes.Buffer
	killed bool // false if it ended by itself
}

func start(t testing.TB, config hostConfig) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	variable, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		TB: t, cmd: exec.Command(self), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		ready: make(chan struct{}), dead: make(chan struct{}), keys: make(map[string]string),
	}
	p.cmd.Env = append(os.Environ(), hostVariable+"="+string(variable), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.log
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(); <-p.dead })
	go p.watch(stdout)
	return p
}

// watch reads the output of the host until it is dead.
func (p *process) watch(stdout io.Reader) {
	getReady := sync.OnceFunc(func() { close(p.ready) })
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		switch kind, rest, _ := strings.Cut(lines.Text(), " "); kind {
		case "key":
			account, token, _ := strings.Cut(rest, " ")
			p.keys[account] = token
		case "ready":
			p.url = rest
			getReady()
		}
	}
	_ = p.cmd.Wait()
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	if !p.killed && !p.cmd.ProcessState.Success() {
		p.Errorf("a host ended with %v", p.cmd.ProcessState)
	}
	for _, bad := range []string{"DATA RACE", "panic", "level=ERROR"} {
		if strings.Contains(p.log.String(), bad) {
			p.Errorf("a host said %q", bad)
		}
	}
	if p.Failed() && p.log.Len() > 0 {
		p.Logf("a host's log:\n%s", &p.log)
	}
	p.client.CloseIdleConnections()
	getReady()
	close(p.dead)
}

func (p *process) kill() { _ = p.cmd.Process.Kill() }

// end starts a proper shutdown of the host.
func (p *process) end() { _ = p.stdin.Close() }

func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// rest waits for d, or until the host is dead.
func (p *process) rest(d time.Duration) {
	select {
	case <-p.dead:
	case <-time.After(d):
	}
}

// A reply is a response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request, with an Idempotency-Key unless that is empty. If there is no response, it
// waits until the host is dead and returns false.
func (p *process) do(method, path, token, idempotencyKey, body string) (reply, bool) {
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.Error(err)
		return reply{}, false
	}
	r.Header.Set("Api-Key", token)
	r.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := p.client.Do(r)
	if err == nil {
		defer response.Body.Close()
		var text []byte
		if text, err = io.ReadAll(response.Body); err == nil {
			return reply{response.StatusCode, response.Header, text}, true
		}
	}
	select {
	case <-p.dead:
	case <-time.After(30 * time.Second):
		p.Errorf("%s %s: %v, from a host that is alive", method, path, err)
	}
	return reply{}, false
}

// want is like do, but fails the test if the response has none of the given statuses.
func (p *process) want(method, path, token, body string, statuses ...int) (reply, bool) {
	return p.expect(method, path, token, "", body, statuses)
}

// wantOnce is like want, for a POST that may have been sent before.
func (p *process) wantOnce(idempotencyKey, path, token, body string, statuses ...int) (reply, bool) {
	return p.expect("POST", path, token, idempotencyKey, body, statuses)
}

func (p *process) expect(method, path, token, idempotencyKey, body string, statuses []int) (reply, bool) {
	r, ok := p.do(method, path, token, idempotencyKey, body)
	if !ok {
		return r, false
	}
	if slices.Contains(statuses, r.status) {
		return r, true
	}
	p.Errorf("%s %s = %d %s, want %v", method, path, r.status, r.body, statuses)
	return r, false
}
