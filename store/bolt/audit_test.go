package bolt_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// The test lists the audit entries of a key that is created, deleted and created again. While the
// key exists, its own row holds the number of the last entry; otherwise another row does.
func TestListAuditEntries_KeyDeletedAndCreatedAgain_ListsAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	must(t, err)
	target := audit.Target{Kind: audit.TargetKey, ID: "key_b"}
	entry := func(id string, action audit.Action) audit.Entry {
		return audit.Entry{ID: id, Account: "acct", Action: action, Target: target, At: time.Now().UTC()}
	}
	create := func(id string, entry audit.Entry) {
		t.Helper()
		key := driver.Key{ID: id, Account: "acct", Scopes: scopes.Specified(), CreatedAt: time.Now().UTC()}
		key.Hash.Sum[0] = id[len(id)-1]
		must(t, s.CreateKey(t.Context(), key, driver.CreateOptions{AuditEntry: entry}))
	}
	wantEntries := func(want ...string) {
		t.Helper()
		page, err := s.ListAuditEntries(t.Context(), "acct", audit.Query{Target: target, Limit: 100})
		must(t, err)
		var got []string
		for _, n := range page.Entries {
			got = append(got, n.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("audit entries of the key (-want +got):\n%s", diff)
		}
	}
	create("key_a", audit.Entry{})
	create("key_c", audit.Entry{})

	added, err := s.AddAuditEntries(t.Context(), []audit.Entry{entry("aud_1", audit.KeyDeleted)}) // as an import of the key's history does
	must(t, err)
	wantEntries("aud_1")
	create("key_b", entry("aud_2", audit.KeyCreated))
	wantEntries("aud_2", "aud_1")
	_, err = s.UpdateKey(t.Context(), "acct", "key_b", func(key *driver.Key, n *audit.Entry) error {
		key.Previous, key.Hash.Sum[1] = key.Hash, 1
		*n = entry("aud_3", audit.KeyRotated)
		return nil
	})
	must(t, err)
	wantEntries("aud_3", "aud_2", "aud_1")
	must(t, s.DeleteKey(t.Context(), "acct", "key_b", nil, entry("aud_4", audit.KeyDeleted)))
	wantEntries("aud_4", "aud_3", "aud_2", "aud_1")
	create("key_b", audit.Entry{})
	wantEntries("aud_4", "aud_3", "aud_2", "aud_1")
	again, err := s.AddAuditEntries(t.Context(), []audit.Entry{entry("aud_2", audit.KeyCreated), entry("aud_0", audit.KeyChanged), entry("aud_4", audit.KeyDeleted)})
	must(t, err)
	if added != 1 || again != 1 {
		t.Errorf("added %d, then %d entries, want 1 and 1", added, again)
	}
	wantEntries("aud_0", "aud_4", "aud_3", "aud_2", "aud_1")

	_, err = s.Purge(t.Context(), driver.Purge{AuditEntries: time.Now().Add(time.Minute), Limit: 100})
	must(t, err)
	wantEntries()
	must(t, s.DeleteKey(t.Context(), "acct", "key_b", nil, audit.Entry{}))
	create("key_b", entry("aud_1", audit.KeyCreated))
	wantEntries("aud_1")
	keys, err := s.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 100})
	must(t, err)
	if len(keys) != 3 || keys[0].ID != "key_c" {
		t.Errorf("got %d keys, the first %q, want 3, the first key_c", len(keys), keys[0].ID)
	}
	must(t, s.Close())
	verify(t, path)
}
