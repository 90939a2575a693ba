package bolt_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// An osCall is a system call that a process made on the file, or a line that the process printed.
type osCall struct {
	name   string // pwrite64, ftruncate, fdatasync, fsync, or line
	data   []byte // data of pwrite64, or the line
	offset int64  // offset of pwrite64, or size of ftruncate
	failed bool
}

// trace runs a child in the given role under strace, and returns its calls in order. inject is the
// fault for strace to inject, which may end the child; if it is empty, there is no fault.
func trace(t *testing.T, role, dir, inject string) []osCall {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("strace is not installed")
		}
		t.Skip("strace is not installed: syncs that fail are not tested")
	}
	log := filepath.Join(t.TempDir(), "strace")
	cmd := child(t, role, dir)
	cmd.Path = strace
	args := []string{"strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "10000000", "-e", "signal=none", "-o", log,
		"-e", "trace=pwrite64,ftruncate,fdatasync,fsync,write"}
	if inject != "" {
		args = append(args, "-e", "inject="+inject)
	}
	cmd.Args = append(args, cmd.Args...)
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	if out, err := cmd.Output(); err != nil && inject == "" {
		t.Fatalf("strace: %v: %s", err, out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return parseTrace(t, text, filepath.Join(dir, "storage.db"))
}

// parseTrace parses the log of strace.
func parseTrace(t *testing.T, text []byte, path string) (calls []osCall) {
	t.Helper()
	begun := make(map[string][]byte) // by thread, the first part of an interrupted line
	for line := range bytes.Lines(text) {
		thread, call, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		call = bytes.TrimSpace(call)
		if head, ok := bytes.CutSuffix(call, []byte(" <unfinished ...>")); ok {
			begun[string(thread)] = head
			continue
		}
		if bytes.HasPrefix(call, []byte("<... ")) {
			_, tail, _ := bytes.Cut(call, []byte("resumed>"))
			call = append(bytes.Clone(begun[string(thread)]), tail...)
		}
		if c, ok := parseCall(t, call, path); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// parseCall parses "name(fd<path>, …) = result". ok is false if the call concerns another file.
func parseCall(t *testing.T, call []byte, path string) (c osCall, ok bool) {
	name, rest, isCall := bytes.Cut(call, []byte("("))
	at := bytes.LastIndex(rest, []byte(") = "))
	if !isCall || at < 0 {
		return c, false
	}
	c.name = string(name)
	if bytes.HasPrefix(rest[at:], []byte(") = ?")) {
		return c, false // the process was killed before the call ended
	}
	c.failed = bytes.HasPrefix(rest[at:], []byte(") = -1"))
	args := bytes.Split(rest[:at], []byte(", "))
	fd, file, _ := bytes.Cut(bytes.TrimSuffix(args[0], []byte(">")), []byte("<"))
	switch {
	case c.name == "write" && string(fd) == "1":
		c.name, c.data = "line", unquote(t, args[1])
		return c, true
	case c.name == "write" || string(unquote(t, file)) != path:
		return c, false
	case c.name == "pwrite64":
		c.data, c.offset = unquote(t, args[1]), number(t, args[3])
	case c.name == "ftruncate":
		c.offset = number(t, args[1])
	}
	return c, true
}

// unquote reads "\x41\x42", with or without the quotation marks.
func unquote(t *testing.T, quoted []byte) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(strings.Trim(string(quoted), `"`), `\x`, ""))
	if err != nil {
		t.Fatalf("strace says %.80q: %v", quoted, err)
	}
	return data
}

func number(t *testing.T, text []byte) int64 {
	t.Helper()
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
