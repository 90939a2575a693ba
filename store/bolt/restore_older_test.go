package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
)

// A copier copies a file in each way in which backups are made.
type copier struct {
	t      *testing.T
	path   string
	s      *bolt.Store
	system testclock.Clock
}

func newCopier(t *testing.T) *copier {
	c := &copier{t: t, path: filepath.Join(t.TempDir(), "storage.db")}
	c.open()
	t.Cleanup(func() { _ = c.s.Close() })
	return c
}

func (c *copier) open() {
	c.t.Helper()
	s, err := bolt.Open(c.path, boltfault.SystemClock(c.system.Now))
	noError(c.t, err)
	c.s = s
}

// pass advances the clock.
func (c *copier) pass(by time.Duration) { c.system.Add(by) }

// live copies the file while it is open.
func (c *copier) live() (path string) {
	c.t.Helper()
	var copied bytes.Buffer
	_, err := c.s.Backup(c.t.Context(), &copied)
	noError(c.t, err)
	path = filepath.Join(c.t.TempDir(), "copy.db")
	noError(c.t, os.WriteFile(path, copied.Bytes(), 0o600))
	return path
}

// closed closes the file, copies it and opens it again.
func (c *copier) closed() (path string) {
	c.t.Helper()
	noError(c.t, c.s.Close())
	path = filepath.Join(c.t.TempDir(), "copy.db")
	copyFile(c.t, c.path, path)
	c.open()
	return path
}

// Restore refuses a copy older than the backup as the abandoned file, even if it is only a little
// older, and regardless of how the two copies were made. Such a copy could revive a key that was
// deleted between the two copies.
func TestRestore_AbandonedFileOlderThanBackup_Refused(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*copier) string{"live": (*copier).live, "closed": (*copier).closed}
	for _, age := range []time.Duration{0, time.Second, time.Minute, 9 * time.Minute, time.Hour, -30 * time.Second} {
		for first, earlier := range ways {
			for second, later := range ways {
				t.Run(fmt.Sprint(age, " ", first, " then ", second), func(t *testing.T) {
					c := newCopier(t)
					keys, err := apikeys.New(c.s, apikeys.Config{})
					noError(t, err)
					key, _, err := keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "deleted", Scopes: scopes.Specified()})
					noError(t, err)
					older := earlier(c)
					c.pass(age)
					noError(t, c.s.DeleteKey(t.Context(), "acct", key.ID, nil, audit.Entry{}))
					backup := later(c)

					restored := filepath.Join(t.TempDir(), "restored.db")
					for _, fence := range []boltops.Fence{{Abandoned: older}, {Abandoned: older, NothingRevoked: true}} {
						if _, err := boltops.Restore(restored, backup, fence); !errors.Is(err, boltops.ErrUnfenced) {
							t.Errorf("got %v, want %v", err, boltops.ErrUnfenced)
						}
					}
				})
			}
		}
	}
}

// Restore accepts the file from which the backup was made as the abandoned file, even if it has not
// changed since, and even if its clock was set.
func TestRestore_AbandonedFileContinued_Accepted(t *testing.T) {
	for _, age := range []time.Duration{0, time.Second, time.Hour, -30 * time.Second, -time.Hour} {
		for _, written := range []bool{true, false} {
			t.Run(fmt.Sprint(age, " written ", written), func(t *testing.T) {
				c := newCopier(t)
				key := driver.Key{ID: "key", Account: "acct", Hash: markedHash("key", 1)}
				noError(t, c.s.CreateKey(t.Context(), key, driver.CreateOptions{}))
				backup := c.live()
				c.pass(age)
				if written {
					noError(t, c.s.DeleteKey(t.Context(), "acct", "key", nil, audit.Entry{}))
				}
				s := restoreFrom(t, backup, c.closed())
				_, err := s.KeyByHash(t.Context(), key.Hash)
				if deleted := errors.Is(err, apierr.ErrNotFound); deleted != written {
					t.Errorf("KeyByHash: got %v, want the key deleted: %v", err, written)
				}
			})
		}
	}
}
