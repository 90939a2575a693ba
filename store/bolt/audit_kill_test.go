package bolt_test

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

func init() { roles["change keys"] = changeKeysForEver }

// The test kills a process that creates, renames and deletes keys from several goroutines.
// Afterwards, the file must have an audit entry for each change, and a change for each entry.
func TestAuditEntries_ProcessKilled_MatchChanges(t *testing.T) {
	t.Parallel()
	dir, begun := t.TempDir(), 0
	for range *kills {
		delay := time.Duration(mathrand.Int64N(int64(20 * time.Millisecond)))
		begun += len(killAfter(t, child(t, "change keys", dir), delay))
	}
	s := open(t, dir)
	defer func() { _ = s.Close() }()
	there := make(map[string]int) // number of renames of each key
	for after := ""; ; {
		list, err := s.ListKeys(t.Context(), "acct", driver.ListQuery{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range list {
			there[key.ID] = len(key.Name) - 1
			after = key.ID
		}
		if len(list) == 0 {
			break
		}
	}
	told := make(map[string]map[audit.Action]int)
	lines := 0
	for query := (audit.Query{Limit: 1000}); ; {
		page, err := s.ListAuditEntries(t.Context(), "acct", query)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range page.Entries {
			if told[n.Target.ID] == nil {
				told[n.Target.ID] = make(map[audit.Action]int)
			}
			told[n.Target.ID][n.Action]++
			lines++
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	pending, err := s.PendingAuditEntries(t.Context(), "acct", lines+1)
	if err != nil || len(pending) != lines {
		t.Errorf("%d are pending, want %d, %v", len(pending), lines, err)
	}
	for id, count := range told {
		renamed, is := there[id]
		if count[audit.KeyCreated] != 1 || is == (count[audit.KeyDeleted] == 1) || is && renamed != count[audit.KeyChanged] {
			t.Errorf("%s is there: %v, renamed %d times; told %v", id, is, renamed, count)
		}
		delete(there, id)
	}
	for id := range there {
		t.Errorf("%s was created, and nothing says so", id)
	}
	t.Logf("%d kills, %d keys begun, %d audit entries", *kills, begun, lines)
	if lines == 0 {
		t.Error("nothing was changed")
	}
}

// changeKeysForEver prints a line for each key before it changes the key.
func changeKeysForEver(path string) error {
	s, err := bolt.Open(path, bolt.Wait(10*time.Second))
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	ctx := context.Background()
	failed := make(chan error, 8)
	var print sync.Mutex
	for range cap(failed) {
		go func() {
			for {
				key := driver.Key{ID: "key_" + rand.Text(), Account: "acct", Name: "x", Scopes: scopes.Specified()}
				_, _ = rand.Read(key.Hash.Sum[:])
				note := func(action audit.Action) audit.Entry {
					return audit.Entry{
						ID: "aud_" + rand.Text(), Account: key.Account, Action: action, Pending: true,
						Target: audit.Target{Kind: audit.TargetKey, ID: key.ID},
					}
				}
				print.Lock()
				fmt.Println(key.ID)
				print.Unlock()
				err := s.CreateKey(ctx, key, driver.CreateOptions{AuditEntry: note(audit.KeyCreated)})
				for range 2 {
					if err == nil {
						_, err = s.UpdateKey(ctx, key.Account, key.ID, func(k *driver.Key, entry *audit.Entry) error {
							k.Name += "x"
							*entry = note(audit.KeyChanged)
							return nil
						})
					}
				}
				if err == nil && key.Hash.Sum[0]%2 == 0 {
					err = s.DeleteKey(ctx, key.Account, key.ID, nil, note(audit.KeyDeleted))
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}
