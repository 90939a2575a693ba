package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/cli"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A result is the exit status and the output of a command.
type result struct {
	status      int
	out, errors string
}

// run runs a command with a standard input.
func run(ctx context.Context, config cli.Config, in string, args ...string) result {
	var out, errs bytes.Buffer
	config.Name, config.Stdin, config.Stdout, config.Stderr = "storage", strings.NewReader(in), &out, &errs
	status := cli.Run(ctx, args, config)
	return result{status, out.String(), errs.String()}
}

// want checks the exit status and that the output contains text.
func (r result) want(t *testing.T, status int, text string) result {
	t.Helper()
	if r.status != status || !strings.Contains(r.out+r.errors, text) {
		t.Errorf("got status %d and %q, %q; want %d and %q", r.status, r.out, r.errors, status, text)
	}
	return r
}

// member returns a member of the JSON object that a command printed.
func (r result) member(t *testing.T, name string) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(r.out), &object); err != nil {
		t.Fatalf("%v: %q, %q", err, r.out, r.errors)
	}
	text, _ := object[name].(string)
	return text
}

// opening returns a Config that opens the service on a file.
func opening(path string) cli.Config {
	return cli.Config{Open: func(context.Context) (*storageapi.Handler, func() error, error) {
		api, err := storageapi.NewHandler(storageapi.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, nil, err
		}
		return api, api.Close, nil
	}}
}

// newAPI returns a running service in memory whose webhooks are received by receiver.
func newAPI(t *testing.T, receiver http.Handler) *storageapi.Handler {
	t.Helper()
	api, err := storageapi.NewHandler(storageapi.Config{
		Store: memory.New(), Logger: slog.New(slog.DiscardHandler), Webhooks: webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(receiver)
	testhook.SetNetwork(api.Webhooks, testhook.Network{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}})
	ran := make(chan error, 1)
	go func() { ran <- api.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = api.Close()
		<-ran
		server.Close()
	})
	return api
}

func nothing(http.ResponseWriter, *http.Request) {}

// The commands for keys work on a file, and through a running host.
func TestRun_Keys(t *testing.T) {
	api := newAPI(t, http.HandlerFunc(nothing))
	server := httptest.NewServer(api.Operations(storageapi.HealthThresholds{}))
	defer server.Close()
	for name, config := range map[string]cli.Config{"file": opening(filepath.Join(t.TempDir(), "storage.db")), "running host": {}} {
		t.Run(name, func(t *testing.T) {
			if config.Open == nil {
				t.Setenv("OPS", server.URL)
			}
			ctx := t.Context()
			const account = "acct/1 ü"
			made := run(ctx, config, "", "keys", "create", "-json", account, "-name", "ci", "-scopes", "files:read,files:write").want(t, 0, `"key":"sak_`)
			id, value := made.member(t, "id"), made.member(t, "key")
			run(ctx, config, "", "keys", "create", account, "-name", "other", "-scopes", "files:delete").want(t, 1, "VALIDATION_ERROR: scopes must be")
			run(ctx, config, "", "keys", "create", account, "-name", "late", "-scopes", "files:read", "-expires", "tomorrow").want(t, 2, "neither a date nor a time")
			listed := run(ctx, config, "", "keys", "list", account).want(t, 0, "ci    files:read,files:write\n")
			if lines := strings.Split(listed.out, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "ID  ") || !strings.HasPrefix(lines[1], id+"  ") {
				t.Errorf("got list:\n%s", listed.out)
			}
			run(ctx, config, value+"\n", "keys", "find", "-json").want(t, 0, `"account":"`+account+`","id":"`+id+`","name":"ci"`)
			run(ctx, config, "", "keys", "find").want(t, 2, "no value is on the standard input")
			run(ctx, config, strings.Replace(value, "a", "b", 1)+"x", "keys", "find").want(t, 1, "not found")

			run(ctx, config, "", "keys", "revoke", account, id).want(t, 2, "This deletes "+id+" (ci) of "+account)
			run(ctx, config, value, "keys", "find").want(t, 0, "live       true\n")
			run(ctx, config, "", "keys", "revoke", "-yes", account, "key_1").want(t, 1, "404 NOT_FOUND")
			run(ctx, config, "", "keys", "revoke", "-yes", account, id).want(t, 0, id)
			run(ctx, config, value, "keys", "find").want(t, 1, "not found")

			leaked := run(ctx, config, "", "keys", "create", "-json", account, "-name", "leaked", "-scopes", "files:read").member(t, "key")
			run(ctx, config, leaked, "keys", "find", "-revoke").want(t, 2, "with -yes")
			run(ctx, config, leaked, "keys", "find", "-revoke", "-yes").want(t, 0, "The value is revoked.")
			run(ctx, config, "", "keys", "list", account).want(t, 0, "ID")
		})
	}
	// The audit log names the host, which has no key.
	log, err := api.Audit.List(t.Context(), "acct/1 ü", audit.Query{Limit: 100})
	if err != nil || len(log.Entries) != 4 {
		t.Errorf("got %d audit entries, %v", len(log.Entries), err)
	}
	for _, entry := range log.Entries {
		if entry.Actor.Kind != audit.ActorHost {
			t.Errorf("got audit entry %+v", entry)
		}
	}
}

func TestRun_Terminal_AsksBeforeItRevokes(t *testing.T) {
	cli.SetTerminal(t)
	config := opening(filepath.Join(t.TempDir(), "storage.db"))
	id := run(t.Context(), config, "", "keys", "create", "-json", "acct_1", "-name", "ci", "-scopes", "files:read").member(t, "id")
	for _, answer := range []string{"", "no\n", "y\n"} {
		run(t.Context(), config, answer, "keys", "revoke", "acct_1", id).want(t, 1, "nothing was done")
	}
	run(t.Context(), config, "yes\n", "keys", "revoke", "acct_1", id).want(t, 0, "Type yes to go on")
}

func TestRun_Arguments(t *testing.T) {
	config := opening(filepath.Join(t.TempDir(), "missing", "storage.db"))
	for args, want := range map[string]result{
		"":                              {2, "", "usage: storage COMMAND"},
		"keys":                          {2, "", "usage: storage COMMAND"},
		"keys destroy":                  {2, "", "usage: storage COMMAND"},
		"keys list":                     {2, "", "usage: storage keys list [flags] ACCOUNT"},
		"keys list a b":                 {2, "", "usage: storage keys list [flags] ACCOUNT"},
		"keys list -colour a":           {2, "", "flag provided but not defined: -colour"},
		"keys list -h":                  {0, "", "list the keys of an account"},
		"keys list a":                   {1, "", "storage keys list: "},
		"keys list -- -a":               {1, "", "storage keys list: "},
		"accounts erase a":              {2, "", "repeat the command with -yes"},
		"webhooks release":              {2, "", "repeat the command with -yes"},
		"restore":                       {2, "", "set -from to the backup"},
		"move -from a -to a":            {2, "", "set -from and -to"},
		"listen":                        {2, "", "set -to to the URL of the receiver"},
		"listen -to http://localhost/x": {2, "", "set KEY in the environment"},
		"verify missing.db":             {1, "", "missing.db"},
	} {
		got := run(t.Context(), config, "", strings.Fields(args)...)
		if got.status != want.status || !strings.Contains(got.errors, want.errors) || got.out != "" {
			t.Errorf("%q: got %+v, want %+v", args, got, want)
		}
	}
	run(t.Context(), cli.Config{}, "", "stats").want(t, 2, "set -ops to the URL")

	path := filepath.Join(t.TempDir(), "storage.db")
	held, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	run(t.Context(), opening(path), "", "stats").want(t, 1, "to use a running host, set -ops")
}

// TestRun_Webhooks lists, resends and recovers deliveries of a running host.
func TestRun_Webhooks(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	api := newAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	server := httptest.NewServer(api.Operations(storageapi.HealthThresholds{}))
	defer server.Close()
	t.Setenv("OPS", server.URL)
	ctx, config := t.Context(), cli.Config{}
	hook, err := api.Webhooks.Create(ctx, "acct_1", webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for range 3 {
		event := webhooks.Event{ID: api.Webhooks.NewEventID(), Account: "acct_1", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
		if err := api.Webhooks.Publish(ctx, event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event.ID)
	}
	waitFor(t, api, hook.ID, events, webhooks.Dead)
	run(ctx, config, "", "webhooks", "list", "acct_1").want(t, 0, hook.ID+"  on     20")
	run(ctx, config, "", "webhooks", "failing").want(t, 0, hook.ID)
	if off := run(ctx, config, "", "webhooks", "failing", "-state", "off", "-json"); off.status != 0 || off.out != "" {
		t.Errorf("no webhook is off: got %+v", off)
	}
	run(ctx, config, "", "webhooks", "failing", "-state", "odd").want(t, 1, "state must be failing, off or held")
	run(ctx, config, "", "stats", "-json").want(t, 0, `"dead":3,`)

	down.Store(false)
	run(ctx, config, "", "webhooks", "explain", "acct_1", hook.ID, events[0]).want(t, 0, "Attempt 1: ")
	run(ctx, config, "", "webhooks", "resend", "acct_1", hook.ID, events[0]).want(t, 0, events[0])
	waitFor(t, api, hook.ID, events[:1], webhooks.Delivered)
	run(ctx, config, "", "webhooks", "resend", "acct_1", hook.ID, "evt_1").want(t, 1, "404 NOT_FOUND")
	run(ctx, config, "", "webhooks", "recover", "acct_1", hook.ID, "-from", "2020-01-01").want(t, 0, "recovered  2\n")
	waitFor(t, api, hook.ID, events, webhooks.Delivered)
	run(ctx, config, "", "webhooks", "release", "-yes").want(t, 0, "released  0\n")

	cli.SetTerminal(t)
	run(ctx, config, "", "webhooks", "recover", "acct_1", hook.ID, "-states", "delivered").want(t, 0, "[========================================] 3 of 3\n")
}

// waitFor waits until the deliveries have a state.
func waitFor(t *testing.T, api *storageapi.Handler, webhookID string, events []string, state webhooks.DeliveryState) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		waiting := slices.DeleteFunc(slices.Clone(events), func(event string) bool {
			d, err := api.Webhooks.Delivery(t.Context(), "acct_1", webhookID, event)
			if err != nil {
				t.Fatal(err)
			}
			return d.State == state
		})
		if len(waiting) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q are not %s", waiting, state)
		}
	}
}

func TestRun_AccountsAndFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "storage.db")
	config, ctx := opening(path), t.Context()
	in := func(name string) string { return filepath.Join(dir, name) }
	value := run(ctx, config, "", "keys", "create", "-json", "acct_1", "-name", "ci", "-scopes", "files:read").member(t, "key")
	run(ctx, config, "", "accounts", "list").want(t, 0, "1     0         0        acct_1\n")

	run(ctx, config, "", "accounts", "export", "acct_1", "-o", in("export")).want(t, 0, "")
	text, err := os.ReadFile(in("export"))
	if err != nil || !strings.Contains(string(text), `"kind":"end"`) || strings.Contains(string(text), value) {
		t.Errorf("got export %s, %v", text, err)
	}
	run(ctx, config, "", "accounts", "export", "acct_1").want(t, 0, `"kind":"end"`)

	run(ctx, config, "", "backup", in("backup.db")).want(t, 0, "backup.db")
	run(ctx, config, "", "backup", in("backup.db")).want(t, 1, "already exists")
	if streamed := run(ctx, config, "", "backup", "-"); streamed.status != 0 || len(streamed.out) < 4096 {
		t.Errorf("backup to the standard output: status %d, %d bytes, %q", streamed.status, len(streamed.out), streamed.errors)
	}
	run(ctx, config, "", "verify", in("backup.db")).want(t, 0, "keys       1\n")
	run(ctx, config, "", "compact", in("small.db"), in("backup.db")).want(t, 0, "bytesAfter")
	run(ctx, config, "", "verify", "-json", in("small.db")).want(t, 0, `"problems":[]`)

	run(ctx, config, "", "accounts", "erase", "-yes", "acct_1").want(t, 0, "keys             1\n")
	run(ctx, config, "", "accounts", "list", "-json").want(t, 0, "")
	run(ctx, config, value, "keys", "find").want(t, 1, "not found")

	// A restore brings the key back, unless the list of revocations names the account.
	run(ctx, config, "", "restore", "-from", in("backup.db"), "-to", path, "-nothing-revoked").want(t, 1, "move it aside, and name it in -abandoned")
	run(ctx, config, "", "restore", "-from", in("backup.db"), "-to", in("new.db")).want(t, 1, "name the abandoned file in -abandoned, list keys in -revoked, or set -nothing-revoked")
	run(ctx, config, "", "restore", "-from", in("backup.db"), "-to", in("new.db"), "-abandoned", in("backup.db")).want(t, 1, "-abandoned is the backup itself")
	if err := os.WriteFile(in("revoked"), []byte("key.deleted acct_2 key_2\naccount.erased acct_1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(ctx, config, "", "restore", "-from", in("backup.db"), "-to", in("new.db"), "-revoked", in("revoked")).want(t, 0, "restored: {")
	run(ctx, opening(in("new.db")), value, "keys", "find").want(t, 1, "not found")
	run(ctx, config, "", "restore", "-from", in("backup.db"), "-to", in("all.db"), "-nothing-revoked").want(t, 0, "restored: {")
	run(ctx, opening(in("all.db")), value, "keys", "find").want(t, 0, "acct_1")

	damaged, err := os.ReadFile(in("small.db"))
	if err != nil {
		t.Fatal(err)
	}
	copy(damaged[30:], "damaged")
	if err := os.WriteFile(in("small.db"), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	run(ctx, config, "", "verify", in("small.db")).want(t, 1, "page 0")
	if leftovers, err := filepath.Glob(in("*.part-*")); err != nil || len(leftovers) > 0 {
		t.Errorf("left over: %q, %v", leftovers, err)
	}
}

// No file may appear under its name if the command is interrupted or the service fails halfway.
func TestRun_CutShort_LeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	path, to := filepath.Join(dir, "storage.db"), filepath.Join(dir, "to")
	made := run(t.Context(), opening(path), "", "keys", "create", "a", "-name", "a", "-scopes", "files:read")
	made.want(t, 0, "sak_")
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"backup", to}, {"accounts", "export", "a", "-o", to}, {"compact", to, path}, {"restore", "-from", path, "-to", to, "-nothing-revoked"}, {"verify", path},
	} {
		run(interrupted, opening(path), "", args...).want(t, 1, "context canceled")
	}
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
		panic(http.ErrAbortHandler)
	}))
	defer broken.Close()
	half := filepath.Join(dir, "half")
	run(t.Context(), cli.Config{}, "", "backup", "-ops", broken.URL, half).want(t, 1, "unexpected EOF")
	run(t.Context(), cli.Config{}, "", "accounts", "export", "-ops", broken.URL, "a", "-o", half).want(t, 1, "unexpected EOF")
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a file: %v", err)
	}
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer html.Close()
	run(t.Context(), cli.Config{}, "", "stats", "-ops", html.URL).want(t, 1, "is not the API's JSON")
	run(t.Context(), cli.Config{}, "", "accounts", "list", "-ops", html.URL).want(t, 1, "invalid character '<'")
}

func TestRun_FileMadeMeanwhile_IsKept(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "to")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := os.WriteFile(to, []byte("theirs"), 0o600); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "ours")
	}))
	defer server.Close()
	check := func() {
		t.Helper()
		run(t.Context(), cli.Config{}, "", "backup", "-ops", server.URL, to).want(t, 1, "exist")
		if got, err := os.ReadFile(to); err != nil || string(got) != "theirs" {
			t.Errorf("got %q, %v", got, err)
		}
		if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 {
			t.Errorf("got files %q, %v", files, err)
		}
		if err := os.Remove(to); err != nil {
			t.Error(err)
		}
	}
	check()
	cli.FailLinks(t)
	check()
	in := filepath.Join(dir, "new")
	run(t.Context(), cli.Config{}, "", "backup", "-ops", server.URL, in).want(t, 0, in)
	if got, err := os.ReadFile(in); err != nil || string(got) != "ours" {
		t.Errorf("without links: got %q, %v", got, err)
	}
}

// A revocation whose response was lost is repeated, and reports success. An erasure is not repeated,
// because the receipt would be empty.
func TestRun_ResponseLost_ReportsWhatHappened(t *testing.T) {
	operations := newAPI(t, http.HandlerFunc(nothing)).Operations(storageapi.HealthThresholds{})
	var deletions, lost atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			if deletions.Add(1) <= lost.Load() {
				operations.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
		}
		operations.ServeHTTP(w, r)
	}))
	defer server.Close()
	t.Setenv("OPS", server.URL)
	create := func() (value string) {
		return run(t.Context(), cli.Config{}, "", "keys", "create", "-json", "acct_1", "-name", "ci", "-scopes", "files:read").member(t, "key")
	}
	value := create()
	lost.Store(1)
	run(t.Context(), cli.Config{}, value, "keys", "find", "-revoke", "-yes").want(t, 0, "The value is revoked.")
	if n := deletions.Load(); n != 2 {
		t.Errorf("%d requests revoked the value, want 2", n)
	}
	run(t.Context(), cli.Config{}, value, "keys", "find").want(t, 1, "not found")

	create()
	deletions.Store(0)
	run(t.Context(), cli.Config{}, "", "accounts", "erase", "-yes", "acct_1").want(t, 1, "EOF; repeat the command")
	if n := deletions.Load(); n != 1 {
		t.Errorf("%d requests erased the account, want 1", n)
	}
	run(t.Context(), cli.Config{}, "", "accounts", "erase", "-yes", "acct_1").want(t, 0, "keys             0\n")
}

// A limitedWriter fails after some bytes, as a closed pipe does.
type limitedWriter struct{ left int }

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestRun_OutputCloses_Ends(t *testing.T) {
	api := newAPI(t, http.HandlerFunc(nothing))
	for range 1000 {
		if _, _, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "a", Scopes: scopes.Specified()}); err != nil {
			t.Fatal(err)
		}
	}
	var requests atomic.Int64
	operations := api.Operations(storageapi.HealthThresholds{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		operations.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, format := range []string{"-json", "-json=false"} {
		requests.Store(0)
		var errs bytes.Buffer
		status := cli.Run(t.Context(), []string{"keys", "list", "-ops", server.URL, format, "acct_1"}, cli.Config{Stdout: &limitedWriter{10_000}, Stderr: &errs})
		if status != cli.ExitFailed || !strings.Contains(errs.String(), "closed pipe") || requests.Load() > 3 {
			t.Errorf("%s: got status %d after %d pages: %s", format, status, requests.Load(), &errs)
		}
	}
}

// The test moves from one file to another, so that it needs no database.
func TestRun_Move(t *testing.T) {
	dir := t.TempDir()
	from, to, position := filepath.Join(dir, "from.db"), filepath.Join(dir, "to.db"), filepath.Join(dir, "position")
	s, err := bolt.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	key := driver.Key{Account: "acct", ID: "key", CreatedAt: time.Now()}
	key.Hash.Sum[0] = 1
	if err := errors.Join(s.CreateKey(t.Context(), key, driver.CreateOptions{}), s.Close()); err != nil {
		t.Fatal(err)
	}
	args := []string{"move", "-from", from, "-to", to, "-position", position}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	run(interrupted, cli.Config{}, "", args...).want(t, 1, "context canceled")
	moved := run(t.Context(), cli.Config{}, "", args...)
	want := result{0, "         1 API keys\nBoth sides are the same. Start the host on " + to + ".\n", "copying: 1 of 1\ncomparing: 1 of 1\n"}
	if diff := cmp.Diff(want, moved, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	run(t.Context(), cli.Config{}, "", args...).want(t, 1, bolt.ErrLeft.Error())
	if s, err = bolt.Open(to); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.KeyByHash(t.Context(), key.Hash); err != nil {
		t.Error(err)
	}
	run(t.Context(), cli.Config{}, "", "move", "-from", filepath.Join(dir, "missing.db"), "-to", to).want(t, 1, "missing.db")
	for place, want := range map[string]string{
		"postgres://me:secret@db/storage": "postgres://me:xxxxx@db/storage", "postgres://me:secret@db:x/storage": "a database",
	} {
		if got := cli.NameOf(place); got != want {
			t.Errorf("NameOf(%q) = %q, want %q", place, got, want)
		}
	}
}
