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

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

func init() { roles["change keys"] = changeKeysForEver }

// TestNoticesKilled kills a process that creates, renames and deletes keys from several
// goroutines: each change that is in the file has its notice, and no other has one.
func TestNoticesKilled(t *testing.T) {
	t.Parallel()
	dir, begun := t.TempDir(), 0
	for range *kills {
		delay := time.Duration(mathrand.Int64N(int64(20 * time.Millisecond)))
		begun += len(killAfter(t, child(t, "change keys", dir), delay))
	}
	s := open(t, dir)
	defer func() { _ = s.Close() }()
	there := make(map[string]int) // how often it was renamed
	for after := ""; ; {
		list, err := s.ListKeys(t.Context(), "acct", apikeys.Page{After: after, Limit: 1000})
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
	told := make(map[string]map[notices.Action]int)
	lines := 0
	for query := (notices.Query{Limit: 1000}); ; {
		page, err := s.ListNotices(t.Context(), "acct", query)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range page.Notices {
			if told[n.Target.ID] == nil {
				told[n.Target.ID] = make(map[notices.Action]int)
			}
			told[n.Target.ID][n.Action]++
			lines++
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	pending, err := s.PendingNotices(t.Context(), "acct", lines+1)
	if err != nil || len(pending) != lines {
		t.Errorf("%d are pending, want %d, %v", len(pending), lines, err)
	}
	for id, count := range told {
		renamed, is := there[id]
		if count[notices.KeyCreated] != 1 || is == (count[notices.KeyDeleted] == 1) || is && renamed != count[notices.KeyChanged] {
			t.Errorf("%s is there: %v, renamed %d times; told %v", id, is, renamed, count)
		}
		delete(there, id)
	}
	for id := range there {
		t.Errorf("%s was created, and nothing says so", id)
	}
	t.Logf("%d kills, %d keys begun, %d notices", *kills, begun, lines)
	if lines == 0 {
		t.Error("nothing was changed")
	}
}

// changeKeysForEver says a line for each key that it begins with.
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
				key := apikeys.Key{ID: "key_" + rand.Text(), Account: "acct", Name: "x", Scopes: scopes.All()}
				_, _ = rand.Read(key.Hash.Sum[:])
				note := func(action notices.Action) notices.Notice {
					return notices.Notice{
						ID: "ntc_" + rand.Text(), Account: key.Account, Action: action, Pending: true,
						Target: notices.Target{Kind: notices.TargetKey, ID: key.ID},
					}
				}
				print.Lock()
				fmt.Println(key.ID)
				print.Unlock()
				err := s.CreateKey(ctx, key, apikeys.CreateOptions{Notice: note(notices.KeyCreated)})
				for range 2 {
					if err == nil {
						_, err = s.UpdateKey(ctx, key.Account, key.ID, func(k *apikeys.Key, notice *notices.Notice) error {
							k.Name += "x"
							*notice = note(notices.KeyChanged)
							return nil
						})
					}
				}
				if err == nil && key.Hash.Sum[0]%2 == 0 {
					err = s.DeleteKey(ctx, key.Account, key.ID, nil, note(notices.KeyDeleted))
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
