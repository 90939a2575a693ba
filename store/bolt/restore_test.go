package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

func init() { roles["restore"] = restoreForEver }

// A lostHost is a host whose file was backed up, and abandoned some time later.
type lostHost struct {
	dir, abandoned, backup string
	tokens                 map[string]apikeys.Token // by name of the key
	keys                   map[string]boltops.Ref
	hooks                  map[string]boltops.Ref
}

// sealing returns the Keyring that seals the secrets of lost hosts.
func sealing(tb testing.TB) *signing.Keyring {
	keys, err := signing.NewKeyring(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// newLostHost makes the files. After the backup, one key is deleted, one rotated, one disabled and
// one created; one webhook is deleted, one gets another URL and one is created. Each event goes to
// all webhooks that the account has at the time. The first event is delivered before the backup,
// the second after it, and the third never. Two more are published after the backup, one of which
// is delivered.
func newLostHost(t testing.TB, options ...bolt.Option) *lostHost {
	t.Helper()
	h := &lostHost{dir: t.TempDir(), tokens: map[string]apikeys.Token{}, keys: map[string]boltops.Ref{}, hooks: map[string]boltops.Ref{}}
	h.abandoned, h.backup = filepath.Join(h.dir, "abandoned.db"), filepath.Join(h.dir, "backup.db")
	s, err := bolt.Open(h.abandoned, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx := t.Context()
	keys, err := apikeys.New(s, apikeys.Config{})
	noError(t, err)
	hooks, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	noError(t, err)
	createKey := func(name string) {
		key, token, err := keys.Create(ctx, "acct", apikeys.CreateParams{Name: name, Scopes: scopes.Specified()})
		noError(t, err)
		h.tokens[name], h.keys[name] = token, boltops.Ref{Account: "acct", ID: key.ID}
	}
	createHook := func(name string) {
		w, err := hooks.Create(ctx, "acct", webhooks.CreateParams{URL: "https://example.com/" + name, Events: []driver.EventType{alerts.TypeBalanceLow}})
		noError(t, err)
		h.hooks[name] = boltops.Ref{Account: "acct", ID: w.ID}
	}
	publish := func(id string) {
		_, err := s.Enqueue(ctx, driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte(`"` + id + `"`)})
		noError(t, err)
	}
	// deliver settles all pending deliveries except the given ones.
	deliver := func(except ...string) {
		tasks, err := storetest.WorkerOf(s).Claim(ctx, 1000)
		noError(t, err)
		var settled []storetest.Settlement
		for _, task := range tasks {
			end := storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 200}}
			if slices.Contains(except, task.Event.ID) {
				end.Effect = storetest.Postpone
			}
			settled = append(settled, end)
		}
		_, err = storetest.WorkerOf(s).Settle(ctx, settled)
		noError(t, err)
	}
	for _, name := range []string{"kept", "deleted", "rotated", "disabled"} {
		createKey(name)
	}
	for _, name := range []string{"kept", "deleted", "moved"} {
		createHook(name)
	}
	for i := range 30 { // enough pages to damage
		createKey(fmt.Sprint("further-", i))
	}
	publish("early")
	deliver()
	publish("since")
	publish("never")
	var copied bytes.Buffer
	_, err = s.Backup(ctx, &copied)
	noError(t, err)
	noError(t, os.WriteFile(h.backup, copied.Bytes(), 0o600))

	deliver("never")
	noError(t, keys.Delete(ctx, "acct", h.keys["deleted"].ID, apikeys.DeleteParams{}))
	_, rotated, err := keys.Rotate(ctx, "acct", h.keys["rotated"].ID, apikeys.RotateParams{})
	noError(t, err)
	h.tokens["new value"] = rotated
	_, err = keys.Update(ctx, "acct", h.keys["disabled"].ID, apikeys.UpdateParams{Enabled: new(bool)})
	noError(t, err)
	createKey("created")
	noError(t, hooks.Delete(ctx, "acct", h.hooks["deleted"].ID, webhooks.DeleteParams{}))
	elsewhere := "https://example.com/elsewhere"
	_, err = hooks.Update(ctx, "acct", h.hooks["moved"].ID, webhooks.UpdateParams{URL: &elsewhere})
	noError(t, err)
	createHook("created")
	publish("late delivered")
	deliver("never")
	publish("late pending")
	return h
}

func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// path returns the path to restore to.
func (h *lostHost) path() string { return filepath.Join(h.dir, "storage.db") }

// lists returns a fence with the lists that a host can take from its audit entries.
func (h *lostHost) lists() boltops.Fence {
	return boltops.Fence{
		DeletedKeys: []boltops.Ref{h.keys["deleted"], {Account: "acct", ID: "key_none"}}, RotatedKeys: []boltops.Ref{h.keys["rotated"]},
		DisabledKeys:    []boltops.Ref{h.keys["disabled"]},
		DeletedWebhooks: []boltops.Ref{h.hooks["deleted"]},
	}
}

// valid returns the names of the keys whose values are valid in a file.
func (h *lostHost) valid(t testing.TB, s *bolt.Store) []string {
	t.Helper()
	keys, err := apikeys.New(s, apikeys.Config{})
	noError(t, err)
	var valid []string
	for name, token := range h.tokens {
		if _, err := keys.Verify(t.Context(), token.Reveal()); err == nil && (len(name) < 8 || name[:8] != "further-") {
			valid = append(valid, name)
		}
	}
	slices.Sort(valid)
	return valid
}

// pending claims the deliveries of a file and settles none. It returns their events and webhook
// URLs.
func pending(t *testing.T, s *bolt.Store) []string {
	t.Helper()
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1000)
	noError(t, err)
	var list []string
	for _, task := range tasks {
		noError(t, task.Err)
		list = append(list, task.Event.ID+" to "+task.Webhook.URL[len("https://example.com/"):])
		if want := `"` + task.Event.ID + `"`; string(task.Event.Body) != want {
			t.Errorf("the body of %s is %s", task.Event.ID, task.Event.Body)
		}
	}
	slices.Sort(list)
	return list
}

// release ends the hold of all webhooks.
func release(t *testing.T, s *bolt.Store) int {
	t.Helper()
	hooks, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	noError(t, err)
	released, err := hooks.ReleaseAll(t.Context())
	noError(t, err)
	return released
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantSound checks that Verify finds no problem in a file.
func wantSound(t testing.TB, path string, options ...bolt.Option) {
	t.Helper()
	var sealer signing.Sealer
	if len(options) > 0 { // the file is sealed
		sealer = sealing(t)
	}
	report, err := boltops.Verify(path, sealer)
	noError(t, err)
	for _, problem := range report.Problems {
		t.Error(problem)
	}
}

// The test restores with only the host's own lists. No revoked key may work, nothing may be sent
// before webhooks are released, and the deliveries that may be sent twice must be reported.
func TestRestore_HostsLists_RevokeKeys(t *testing.T) {
	h := newLostHost(t)
	fence := h.lists()
	twice := map[string]int{}
	fence.Report = func(f boltops.Finding) {
		if f.Kind == boltops.MayBeSentTwice {
			twice[f.ID]++
		}
	}
	info, err := boltops.Restore(h.path(), h.backup, fence)
	noError(t, err)
	if info.LastPublished.IsZero() {
		t.Error("LastPublished is zero")
	}
	info.LastPublished = time.Time{}
	want(t, "RestoreInfo", info, boltops.RestoreInfo{KeysDeleted: 1, KeysDead: 1, KeysDisabled: 1, WebhooksHeld: 2, WebhooksDeleted: 1, MayBeSentTwice: 4})
	want(t, "what may be sent twice", twice, map[string]int{"since": 2, "never": 2})
	wantSound(t, h.path())
	s, err := bolt.Open(h.path())
	noError(t, err)
	defer func() { _ = s.Close() }()
	want(t, "values that are valid", h.valid(t, s), []string{"kept"})
	if key, err := s.KeyByID(t.Context(), "acct", h.keys["rotated"].ID); err != nil || key.Name != "rotated" {
		t.Errorf("the rotated key is %+v, %v", key, err)
	}
	want(t, "claimed before the release", pending(t, s), nil)
	want(t, "released", release(t, s), 2)
	want(t, "claimed after it", pending(t, s), []string{"never to kept", "never to moved", "since to kept", "since to moved"})
}

// After a restore, the hint of each key must match its value. A key whose value is unknown must
// have no hint.
func TestRestore_Hints_MatchValues(t *testing.T) {
	for name, fence := range map[string]func(*lostHost) boltops.Fence{
		"by lists":                func(h *lostHost) boltops.Fence { return h.lists() },
		"from the abandoned file": func(h *lostHost) boltops.Fence { return boltops.Fence{Abandoned: h.abandoned} },
	} {
		t.Run(name, func(t *testing.T) {
			h := newLostHost(t)
			_, err := boltops.Restore(h.path(), h.backup, fence(h))
			noError(t, err)
			s, err := bolt.Open(h.path())
			noError(t, err)
			defer func() { _ = s.Close() }()
			hints := func(name string) []string {
				key, err := s.KeyByID(t.Context(), "acct", h.keys[name].ID)
				noError(t, err)
				return []string{key.Hint, key.PreviousHint}
			}
			want(t, "hints of a key that was kept", hints("kept"), []string{h.tokens["kept"].Hint(), ""})
			rotated := []string{"", ""}
			if fence(h).Abandoned != "" {
				rotated = []string{h.tokens["new value"].Hint(), h.tokens["rotated"].Hint()}
			}
			want(t, "hints of one that was rotated", hints("rotated"), rotated)
		})
	}
}

// The test restores with the abandoned file. The contents must be the same as in that file, and no
// delivery may be sent twice.
func TestRestore_AbandonedFile_LosesNothing(t *testing.T) {
	h := newLostHost(t, bolt.Sealed(sealing(t)))
	found := map[boltops.FindingKind]int{}
	fence := boltops.Fence{Abandoned: h.abandoned, Report: func(f boltops.Finding) { found[f.Kind]++ }}
	info, err := boltops.Restore(h.path(), h.backup, fence, bolt.Sealed(sealing(t)))
	noError(t, err)
	info.LastPublished = time.Time{}
	want(t, "RestoreInfo", info, boltops.RestoreInfo{WebhooksHeld: 3})
	want(t, "findings", found, nil)
	wantSound(t, h.path(), bolt.Sealed(sealing(t)))
	s, err := bolt.Open(h.path(), bolt.Sealed(sealing(t)))
	noError(t, err)
	defer func() { _ = s.Close() }()
	old, err := bolt.Open(h.abandoned, bolt.Sealed(sealing(t)))
	noError(t, err)
	defer func() { _ = old.Close() }()
	want(t, "values that are valid", h.valid(t, s), []string{"created", "kept", "new value"})
	want(t, "claimed before the release", pending(t, s), nil)
	for _, event := range []string{"early", "since", "never", "late delivered", "late pending"} {
		got, err := s.EventDeliveries(t.Context(), "acct", event)
		noError(t, err)
		was, err := old.EventDeliveries(t.Context(), "acct", event)
		noError(t, err)
		want(t, "deliveries of "+event, got, was)
	}
	want(t, "released", release(t, s), 3)
	want(t, "claimed after it", pending(t, s), pending(t, old))
	if n, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "late delivered", Account: "acct", Type: alerts.TypeBalanceLow}); n != 3 || err != nil {
		t.Errorf("published again: %d deliveries, %v; want the 3 of before", n, err)
	}
	for name := range h.hooks {
		w, err := s.WebhookByID(t.Context(), "acct", h.hooks[name].ID)
		was, errWas := old.WebhookByID(t.Context(), "acct", h.hooks[name].ID)
		if !errors.Is(err, errWas) {
			t.Errorf("webhook %s: %v, was %v", name, err, errWas)
		}
		if w.URL != was.URL || !w.Secret.Equal(was.Secret) {
			t.Errorf("webhook %s is at %s, was at %s", name, w.URL, was.URL)
		}
	}
}

// The test restores an account that was erased since the backup, or whose erasure is in progress in
// the abandoned file. Restore must erase it.
func TestRestore_AccountErasedSince_IsErased(t *testing.T) {
	h := newLostHost(t)
	s, err := bolt.Open(h.abandoned)
	noError(t, err)
	_, more, err := s.EraseAccount(t.Context(), "acct", 1)
	noError(t, err)
	noError(t, s.Close())
	if !more {
		t.Fatal("it was erased in a step")
	}
	for name, fence := range map[string]boltops.Fence{
		"listed": {NothingRevoked: true, ErasedAccounts: []string{"acct"}}, "begun": {Abandoned: h.abandoned},
	} {
		info, err := boltops.Restore(h.path(), h.backup, fence)
		noError(t, err)
		wantSound(t, h.path())
		s, err := bolt.Open(h.path())
		noError(t, err)
		want(t, name+": values that are valid", h.valid(t, s), nil)
		hooks, err := s.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 9})
		noError(t, err)
		if len(hooks) > 0 || info.AccountsErased != 1 {
			t.Errorf("%s: %d webhooks are left; %+v", name, len(hooks), info)
		}
		for _, event := range []string{"early", "since", "never", "late delivered", "late pending"} {
			if _, err := s.EventDeliveries(t.Context(), "acct", event); !errors.Is(err, apierr.ErrNotFound) {
				t.Errorf("%s: %s is left: %v", name, event, err)
			}
		}
		noError(t, s.Close())
		noError(t, os.Remove(h.path()))
	}
}

// An erasure was in progress at the time of the backup, and has ended since. Restore must keep data
// that the account got afterwards.
func TestRestore_ErasureInProgress_IsFinished(t *testing.T) {
	h := newLostHost(t)
	s, err := bolt.Open(h.abandoned)
	noError(t, err)
	_, more, err := s.EraseAccount(t.Context(), "acct", 1)
	noError(t, err)
	var copied bytes.Buffer
	_, err = s.Backup(t.Context(), &copied)
	noError(t, err)
	for more {
		_, more, err = s.EraseAccount(t.Context(), "acct", 1000)
		noError(t, err)
	}
	keys, err := apikeys.New(s, apikeys.Config{})
	noError(t, err)
	_, token, err := keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "anew", Scopes: scopes.Specified()})
	noError(t, err)
	h.tokens["anew"] = token
	noError(t, s.Close())
	noError(t, os.WriteFile(h.backup, copied.Bytes(), 0o600))
	_, err = boltops.Restore(h.path(), h.backup, boltops.Fence{Abandoned: h.abandoned})
	noError(t, err)
	wantSound(t, h.path())
	s, err = bolt.Open(h.path())
	noError(t, err)
	defer func() { _ = s.Close() }()
	want(t, "values that are valid", h.valid(t, s), []string{"anew"})
}

// The test uses an abandoned file that was itself restored from an earlier backup. So the abandoned
// file and the backup have different events with the same numbers. No event may be lost.
func TestRestore_AbandonedFileWasRestored_LosesNoEvent(t *testing.T) {
	h := newLostHost(t)
	fork := filepath.Join(h.dir, "fork.db")
	_, err := boltops.Restore(fork, h.backup, h.lists())
	noError(t, err)
	s, err := bolt.Open(fork)
	noError(t, err)
	_, err = s.Enqueue(t.Context(), driver.EncodedEvent{ID: "forked", Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte(`"forked"`)})
	noError(t, err)
	noError(t, s.Close())
	info, err := boltops.Restore(h.path(), h.abandoned, boltops.Fence{Abandoned: fork})
	noError(t, err)
	wantSound(t, h.path())
	s, err = bolt.Open(h.path())
	noError(t, err)
	defer func() { _ = s.Close() }()
	for _, event := range []string{"early", "since", "never", "late delivered", "late pending", "forked"} {
		if _, err := s.EventDeliveries(t.Context(), "acct", event); err != nil {
			t.Errorf("%s: %v; %+v", event, err, info)
		}
	}
	want(t, "events added", info.EventsAdded, 2)
}

// The test damages each page of the abandoned file in turn. Restore must refuse the file, name it,
// and leave no file. Damage in an unused page must have no effect.
func TestRestore_AbandonedFileWithDamagedPages_RefusedByName(t *testing.T) {
	h := newLostHost(t)
	whole, err := os.ReadFile(h.abandoned)
	noError(t, err)
	refused := 0
	const page = 4096
	for id := range len(whole) / page {
		damaged := bytes.Clone(whole)
		for i := range page {
			damaged[id*page+i] ^= 0x5a
		}
		noError(t, os.WriteFile(h.abandoned, damaged, 0o600))
		fence := h.lists()
		fence.Abandoned = h.abandoned
		if _, err := boltops.Restore(h.path(), h.backup, fence); err == nil {
			wantSound(t, h.path())
			noError(t, os.Remove(h.path()))
		} else if refused++; !errors.Is(err, bolt.ErrSchema) || !strings.Contains(err.Error(), h.abandoned) {
			t.Errorf("page %d: got %v, want %v with the name of the file", id, err, bolt.ErrSchema)
		}
		wantAlone(t, h)
		now, err := os.ReadFile(h.abandoned)
		noError(t, err)
		if !bytes.Equal(now, damaged) {
			t.Fatal("Restore has changed the abandoned file")
		}
	}
	t.Logf("of %d pages: %d refused", len(whole)/page, refused)
	if refused < 10 {
		t.Errorf("coverage precondition failed: %d of %d damaged pages were refused", refused, len(whole)/page)
	}
}

// wantAlone checks that the directory has only the backup and the abandoned file.
func wantAlone(t *testing.T, h *lostHost) {
	t.Helper()
	entries, err := os.ReadDir(h.dir)
	noError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	want(t, "files", names, []string{"abandoned.db", "backup.db"})
}

// FuzzRestore changes bytes of the abandoned file. Restore must return, and must leave a sound
// file, a file with damaged rows that it reports, or no file. Revoked keys must be invalid.
func FuzzRestore(f *testing.F) {
	h := newLostHost(f)
	whole, err := os.ReadFile(h.abandoned)
	noError(f, err)
	for at := 0; at < len(whole); at += 3001 {
		f.Add(uint32(at), []byte{0xff, 0, 1, 0x80})
	}
	f.Fuzz(func(t *testing.T, at uint32, there []byte) {
		damaged := bytes.Clone(whole)
		copy(damaged[int(at)%len(damaged):], there)
		dir := t.TempDir()
		abandoned, path := filepath.Join(dir, "abandoned.db"), filepath.Join(dir, "storage.db")
		noError(t, os.WriteFile(abandoned, damaged, 0o600))
		fence := h.lists()
		fence.Abandoned = abandoned
		info, err := boltops.Restore(path, h.backup, fence)
		if err != nil {
			return
		}
		if len(info.Damaged) == 0 {
			wantSound(t, path)
		}
		s, err := bolt.Open(path)
		noError(t, err)
		defer func() { _ = s.Close() }()
		if valid := h.valid(t, s); slices.Contains(valid, "deleted") || slices.Contains(valid, "rotated") {
			t.Errorf("valid are %q", valid)
		}
	})
}

// If Restore cannot create a safe and complete file from the input, it returns an error and leaves
// no file.
func TestRestore_UnsafeInput_IsRefused(t *testing.T) {
	t.Parallel()
	h := newLostHost(t, bolt.Sealed(sealing(t)))
	other, err := signing.NewKeyring(bytes.Repeat([]byte{8}, 32))
	noError(t, err)
	sealed := bolt.Sealed(sealing(t))
	fine := boltops.Fence{NothingRevoked: true}
	try := func(name string, wanted error, from string, fence boltops.Fence, options ...bolt.Option) {
		t.Helper()
		if _, err := boltops.Restore(h.path(), from, fence, options...); !errors.Is(err, wanted) {
			t.Errorf("%s: %v, want %v", name, err, wanted)
		}
		wantAlone(t, h)
	}
	try("no fence", boltops.ErrUnfenced, h.backup, boltops.Fence{}, sealed)
	try("a hold alone", boltops.ErrUnfenced, h.backup, boltops.Fence{DeletedWebhooks: []boltops.Ref{h.hooks["deleted"]}}, sealed)
	try("other keys", signing.ErrSealed, h.backup, fine, bolt.Sealed(other))
	try("no keys", signing.ErrSealed, h.backup, fine)
	try("no backup", fs.ErrNotExist, filepath.Join(h.dir, "none.db"), fine, sealed)
	try("no abandoned file", fs.ErrNotExist, h.backup, boltops.Fence{Abandoned: filepath.Join(h.dir, "none.db")}, sealed)

	whole, err := os.ReadFile(h.backup)
	noError(t, err)
	from := filepath.Join(t.TempDir(), "damaged.db")
	pages := 0
	for id := range len(whole) / 4096 {
		damaged := bytes.Clone(whole)
		for i := range 4096 {
			damaged[id*4096+i] ^= 0x5a
		}
		noError(t, os.WriteFile(from, damaged, 0o600))
		if _, err := boltops.Restore(h.path(), from, fine, sealed); err == nil {
			noError(t, os.Remove(h.path())) // a free page
		} else if pages++; !errors.Is(err, bolt.ErrSchema) {
			t.Errorf("page %d: %v", id, err)
		}
		wantAlone(t, h)
	}
	if pages == 0 {
		t.Error("no page was damaged that matters")
	}
	noError(t, os.WriteFile(from, whole[:len(whole)/2], 0o600))
	if _, err := boltops.Restore(h.path(), from, fine, sealed); err == nil {
		t.Error("half a backup was restored")
	}
	wantAlone(t, h)

	for name, file := range map[string]string{"the backup": h.backup, "the abandoned file": h.abandoned} {
		s, err := bolt.Open(file, sealed)
		noError(t, err)
		try(name+" is in use", bolt.ErrLocked, h.backup, boltops.Fence{Abandoned: h.abandoned}, sealed)
		noError(t, s.Close())
	}
	stranger := newLostHost(t)
	if _, err := boltops.Restore(h.path(), h.backup, boltops.Fence{Abandoned: stranger.abandoned}, sealed); err == nil {
		t.Error("the abandoned file of another host was taken")
	}
	wantAlone(t, h)
	noError(t, os.WriteFile(h.path(), nil, 0o600))
	if _, err := boltops.Restore(h.path(), h.backup, fine, sealed); !errors.Is(err, fs.ErrExist) {
		t.Errorf("with a file there: %v", err)
	}
}

// Restore does not replace a file that appears at path while it runs, for example because a
// supervisor starts the host.
func TestRestore_FileAppearsAtPath_IsKept(t *testing.T) {
	h := newLostHost(t)
	fence := h.lists()
	fence.Report = func(boltops.Finding) { noError(t, os.WriteFile(h.path(), []byte("acknowledged"), 0o600)) }
	if _, err := boltops.Restore(h.path(), h.backup, fence); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Restore: %v", err)
	}
	got, err := os.ReadFile(h.path())
	noError(t, err)
	want(t, "the file that appeared", string(got), "acknowledged")
	noError(t, os.Remove(h.path()))
	wantAlone(t, h)
}

// The test starts a Restore while another Restore to the same path is running. One of them must
// succeed, and apply its fence to the file.
func TestRestore_ConcurrentToSamePath_OneSucceeds(t *testing.T) {
	h := newLostHost(t)
	first, second := h.lists(), h.lists()
	begun, ended, done := make(chan bool), make(chan bool), make(chan error)
	second.Report = func(boltops.Finding) {
		if begun != nil {
			close(begun)
			begun = nil
			<-ended
		}
	}
	wait, once := begun, sync.OnceFunc(func() {
		go func() {
			_, err := boltops.Restore(h.path(), h.backup, second)
			done <- err
		}()
	})
	first.Report = func(boltops.Finding) {
		once()
		<-wait
	}
	_, errFirst := boltops.Restore(h.path(), h.backup, first)
	if errFirst == nil { // so the file at path must be complete
		wantSound(t, h.path())
	}
	close(ended)
	if errSecond := <-done; (errFirst == nil) == (errSecond == nil) {
		t.Fatalf("the first: %v, the second: %v", errFirst, errSecond)
	}
	wantSound(t, h.path())
	s, err := bolt.Open(h.path())
	noError(t, err)
	want(t, "values that are valid", h.valid(t, s), []string{"kept"})
	want(t, "claimed before the release", pending(t, s), nil)
	noError(t, s.Close())
	noError(t, os.Remove(h.path()))
	wantAlone(t, h)
}

// The test names an abandoned file that has nothing newer than the backup: the backup itself, or an
// earlier backup.
func TestRestore_AbandonedFileHasNothingNewer_IsRefused(t *testing.T) {
	h := newLostHost(t)
	link := filepath.Join(t.TempDir(), "link.db")
	noError(t, os.Symlink(h.backup, link))
	if _, err := boltops.Restore(h.path(), h.backup, boltops.Fence{Abandoned: link}); !errors.Is(err, boltops.ErrUnfenced) {
		t.Errorf("with the backup itself: %v", err)
	}
	older := filepath.Join(t.TempDir(), "older.db")
	whole, err := os.ReadFile(h.backup)
	noError(t, err)
	noError(t, os.WriteFile(older, whole, 0o600))
	fence := h.lists()
	fence.Abandoned, fence.DeletedKeys = older, nil
	_, err = boltops.Restore(h.path(), h.backup, fence)
	noError(t, err)
	s, err := bolt.Open(h.path())
	noError(t, err)
	want(t, "values that are valid, of a key whose rotation the file does not have", h.valid(t, s), []string{"deleted", "kept"})
	noError(t, s.Close())
	noError(t, os.Remove(h.path()))

	var system testclock.Clock
	s, err = bolt.Open(h.abandoned, boltfault.SystemClock(system.Now))
	noError(t, err)
	system.RunAhead(time.Hour) // so that the clock is marked
	for more := true; more; {
		more, err = s.Purge(t.Context(), driver.Purge{Limit: 100})
		noError(t, err)
	}
	noError(t, s.Close())
	if _, err := boltops.Restore(h.path(), h.abandoned, boltops.Fence{Abandoned: older}); !errors.Is(err, boltops.ErrUnfenced) {
		t.Errorf("with an older file: %v", err)
	}
}

// The test repeatedly kills a process that restores. Each time, there must be no file, or a
// complete file with the fence applied.
func TestRestore_Killed_LeavesNoOrCompleteFile(t *testing.T) {
	t.Parallel()
	h := newLostHost(t)
	absent, there := 0, 0
	for range *kills {
		_ = os.Remove(h.path())
		killAfter(t, child(t, "restore", h.dir), time.Duration(rand.Int64N(int64(100*time.Millisecond))))
		if _, err := os.Stat(h.path()); errors.Is(err, fs.ErrNotExist) {
			absent++
			continue
		}
		there++
		wantSound(t, h.path())
		s, err := bolt.Open(h.path())
		noError(t, err)
		want(t, "values that are valid", h.valid(t, s), []string{"created", "kept", "new value"})
		want(t, "claimed before the release", pending(t, s), nil)
		release(t, s)
		want(t, "claimed after it", pending(t, s), []string{
			"late pending to created", "late pending to elsewhere", "late pending to kept", "never to elsewhere", "never to kept",
		})
		noError(t, s.Close())
	}
	t.Logf("%d kills: absent after %d, whole after %d", *kills, absent, there)
	_ = os.Remove(h.path())
	_, err := boltops.Restore(h.path(), h.backup, boltops.Fence{Abandoned: h.abandoned})
	noError(t, err)
	left, err := filepath.Glob(h.path() + "?*")
	noError(t, err)
	want(t, "what killed processes have left", left, nil)
}

// restoreForEver restores a file again and again.
func restoreForEver(path string) error {
	dir := filepath.Dir(path)
	fmt.Println("begun")
	for {
		if _, err := boltops.Restore(path, filepath.Join(dir, "backup.db"), boltops.Fence{Abandoned: filepath.Join(dir, "abandoned.db")}); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		if _, err := boltops.Restore(path, filepath.Join(dir, "backup.db"), boltops.Fence{Abandoned: filepath.Join(dir, "abandoned.db")}); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond) // leaves time for a kill after the file exists
		if err := os.Remove(path); err != nil {
			return err
		}
	}
}

// A client reads the event list of a file that is then lost, and continues with the restored file,
// whose events have different numbers. The client must start over from a point in time, and then
// get all events.
func TestRestore_EventCursors_StartOver(t *testing.T) {
	dir := t.TempDir()
	path, backup, restored := filepath.Join(dir, "db"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "restored.db")
	s, err := bolt.Open(path)
	noError(t, err)
	enqueue := func(s *bolt.Store, id string) {
		t.Helper()
		_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow})
		noError(t, err)
	}
	enqueue(s, "early")
	var copied bytes.Buffer
	_, err = s.Backup(t.Context(), &copied)
	noError(t, err)
	noError(t, os.WriteFile(backup, copied.Bytes(), 0o600))
	for i := range 9 {
		enqueue(s, fmt.Sprint("lost-", i))
	}
	query := driver.EventQuery{OldestFirst: true, Limit: 99}
	page, err := s.ListEvents(t.Context(), "acct", query)
	noError(t, err)
	query.After = page.Resume
	noError(t, s.Close())

	_, err = boltops.Restore(restored, backup, boltops.Fence{NothingRevoked: true})
	noError(t, err)
	s, err = bolt.Open(restored)
	noError(t, err)
	defer func() { _ = s.Close() }()
	enqueue(s, "later")
	page, err = s.ListEvents(t.Context(), "acct", query)
	noError(t, err)
	if len(page.Events) != 2 || page.Events[1].ID != "later" {
		t.Errorf("the list is %+v, want both", page.Events)
	}
}
