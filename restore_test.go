package storageapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// TestRestoreRunbook follows docs/operations.md and runs the commands on that page. A host is
// backed up, continues, and is killed. It is then restored, once with and once without the
// abandoned file. Revoked values must not work, and the report must list each delivery that may be
// sent twice.
func TestRestoreRunbook(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	blocks := restoreBlocks(t)
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "storage"), "./examples/host")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	dir := t.TempDir()
	h := newLostHost(t, dir)
	run := func(commands string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", commands)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DELETED="+h.deleted.ID, "ROTATED="+h.rotated.ID)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
		return string(out)
	}

	out := run(blocks[0])
	if strings.Contains(out, "may be sent twice:") || strings.Contains(out, "key without a value:") {
		t.Errorf("with the abandoned file: %s", out)
	}
	h.audit(t, dir, map[string]bool{h.token: true, h.newValue: true}, []string{"evt_late", "evt_never"})

	out = run(blocks[1])
	for _, line := range []string{"key without a value: acct_1 " + h.rotated.ID, "may be sent twice: acct_1 evt_since", "may be sent twice: acct_1 evt_never"} {
		if !strings.Contains(out, line) {
			t.Errorf("without the abandoned file there is no %q in:\n%s", line, out)
		}
	}
	h.audit(t, dir, map[string]bool{h.token: true}, []string{"evt_never", "evt_since"})
}

// restoreBlocks returns the runbook's blocks of commands.
func restoreBlocks(t *testing.T) (blocks []string) {
	t.Helper()
	_, section, found := strings.Cut(readFile(t, "docs/operations.md"), "\n## Restore\n")
	if !found {
		t.Fatal("docs/operations.md has no section on it")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) != 2 {
		t.Fatalf("there are %d blocks of commands, want 2", len(blocks))
	}
	return blocks
}

// A lostHost is a host that was backed up and later killed.
type lostHost struct {
	deleted, rotated                        apikeys.Key
	token, deletedValue, oldValue, newValue string
}

// newLostHost writes to dir a backup.db, and a storage.db as it would be left by a killed process.
func newLostHost(t *testing.T, dir string) (h lostHost) {
	t.Helper()
	live := filepath.Join(t.TempDir(), "storage.db")
	api, store := openHost(t, live)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string) (apikeys.Key, string) {
		key, token, err := api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: name, Scopes: scopes.Specified()})
		must(err)
		return key, token.Reveal()
	}
	publish := func(id string) {
		must(api.Webhooks.Publish(ctx, webhooks.Event{ID: id, Account: "acct_1", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
	}
	_, h.token = create("kept")
	h.deleted, h.deletedValue = create("deleted")
	h.rotated, h.oldValue = create("rotated")
	_, err := api.Webhooks.Create(ctx, "acct_1", webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	must(err)
	publish("evt_since")
	publish("evt_never")
	var backup bytes.Buffer
	_, err = api.Backup(ctx, &backup)
	must(err)
	must(os.WriteFile(filepath.Join(dir, "backup.db"), backup.Bytes(), 0o600))

	must(api.Keys.Delete(ctx, "acct_1", h.deleted.ID, apikeys.DeleteParams{}))
	_, value, err := api.Keys.Rotate(ctx, "acct_1", h.rotated.ID, apikeys.RotateParams{})
	must(err)
	h.newValue = value.Reveal()
	deliver(ctx, t, store, "evt_since")
	publish("evt_late")
	killed, err := os.ReadFile(live) // no write is in progress
	must(err)
	must(os.WriteFile(filepath.Join(dir, "storage.db"), killed, 0o600))
	return h
}

// openHost opens a host's file.
func openHost(t *testing.T, path string) (*storageapi.Handler, *bolt.Store) {
	t.Helper()
	store, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api, store
}

// deliver settles the event's delivery as delivered and postpones all other deliveries.
func deliver(ctx context.Context, t *testing.T, store *bolt.Store, event string) {
	t.Helper()
	tasks, err := storetest.WorkerOf(store).Claim(ctx, 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		end := storetest.Settlement{Task: task, Effect: storetest.Postpone}
		if task.Event.ID == event {
			end.Effect, end.Attempt = driver.Deliver, webhooks.Attempt{Number: 1, StartedAt: task.Webhook.CreatedAt, Status: 200}
		}
		if _, err := storetest.WorkerOf(store).Settle(ctx, []storetest.Settlement{end}); err != nil {
			t.Fatal(err)
		}
	}
}

// audit opens the restored file as a host does. It checks which values are valid, and which
// deliveries are pending before and after the release.
func (h *lostHost) audit(t *testing.T, dir string, valid map[string]bool, pending []string) {
	t.Helper()
	api, store := openHost(t, filepath.Join(dir, "storage.db"))
	defer func() { _ = errors.Join(api.Close(), store.Close()) }()
	for _, token := range []string{h.token, h.deletedValue, h.oldValue, h.newValue} {
		if _, err := api.Keys.Verify(t.Context(), token); (err == nil) != valid[token] {
			t.Errorf("a value is valid: %v, want %v", err == nil, valid[token])
		}
	}
	claimed := func() (ids []string) {
		tasks, err := storetest.WorkerOf(store).Claim(t.Context(), 9)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			ids = append(ids, task.Event.ID)
		}
		return ids
	}
	if got := claimed(); len(got) > 0 {
		t.Errorf("before the release %q is claimed", got)
	}
	if released, err := api.Webhooks.ReleaseAll(t.Context()); err != nil || released != 1 {
		t.Errorf("ReleaseAll = %d, %v", released, err)
	}
	got := claimed()
	for _, want := range pending {
		if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("%s is not pending after the release: %q", want, got)
		}
	}
	if len(got) != len(pending) {
		t.Errorf("after the release %q is claimed, want %q", got, pending)
	}
}
