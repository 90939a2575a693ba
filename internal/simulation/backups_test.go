package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
)

// A backupper backs up the file at random moments, twice within some minutes. It checks that each
// backup is sound and can be restored, and that an earlier backup is not taken for the abandoned
// file when a later one is restored.
type backupper struct {
	*actor
	last     atomic.Pointer[string] // path of the last backup; nil means none
	made     atomic.Int64
	restored atomic.Int64
}

func newBackupper(w *world) *backupper {
	return &backupper{actor: newActor(&account{world: w, id: "none-backups"}, "backups", 6)}
}

func (b *backupper) live(ctx context.Context, share float64) {
	b.paced(8, share, func() {
		b.backUp(ctx)
		time.Sleep(span(b.rand, time.Second, 10*time.Minute))
		if !b.world.broken() && b.world.now() < b.world.era.to {
			b.backUp(ctx)
		}
	})
}

// backUp makes a backup, verifies it and restores it. It may fail while the disk fails or the
// store is being closed.
func (b *backupper) backUp(ctx context.Context) {
	w := b.world
	if w.path == "" {
		return
	}
	path := filepath.Join(filepath.Dir(w.path), fmt.Sprint("backup-", b.made.Add(1)))
	file, err := os.Create(path)
	if err != nil {
		w.breach("a backup is made", nil, "%v", err)
		return
	}
	w.truth(func(_ context.Context, s store.Store) {
		_, err = s.(*bolt.Store).Backup(ctx, file)
	})
	if err = errors.Join(err, file.Close()); err != nil {
		b.tell(nil, "backup: %v", err)
		_ = os.Remove(path)
		return
	}
	w.tally.add("Backup", string(none))
	if !b.isSound("a backup", path) {
		return
	}
	earlier := b.last.Swap(&path)
	b.restore("a backup", path, boltops.Fence{NothingRevoked: true})
	if earlier != nil {
		b.confuse(path, *earlier)
	}
}

// confuse restores a backup with an earlier backup as the abandoned file. Restore must refuse this,
// because records deleted between the two would reappear. It may accept two backups with the same
// content, since a halted store cannot mark its clock between them.
func (b *backupper) confuse(path, earlier string) {
	w := b.world
	restored := fmt.Sprint(w.path, ".restored-", b.restored.Add(1))
	_, err := boltops.Restore(restored, path, boltops.Fence{Abandoned: earlier})
	defer func() { _ = os.Remove(restored) }()
	if errors.Is(err, boltops.ErrUnfenced) {
		return
	}
	got, unread := boltops.Verify(restored, nil)
	want, unwanted := boltops.Verify(path, nil)
	same := got.Keys == want.Keys && got.Webhooks == want.Webhooks && got.Events == want.Events && got.Pending == want.Pending
	if err = errors.Join(err, unread, unwanted); err != nil || !same {
		w.breach("no file that is older than the backup is accepted", nil, "%s restored with %s as the abandoned file: got %+v, want %+v, %v",
			filepath.Base(path), filepath.Base(earlier), got, want, err)
	}
}

// restoreClosed restores the last backup with the closed file as the abandoned file, and checks
// that nothing is lost.
func (b *backupper) restoreClosed() {
	last := b.last.Load()
	if last == nil {
		return
	}
	b.restore("a backup and the file", *last, boltops.Fence{Abandoned: b.world.path})
}

// restore restores a backup.
func (b *backupper) restore(what, from string, fence boltops.Fence) {
	w := b.world
	restored := fmt.Sprint(w.path, ".restored-", b.restored.Add(1))
	if _, err := boltops.Restore(restored, from, fence); err != nil {
		w.breach("a backup is restored", nil, "%s: %v", what, err)
		return
	}
	b.isSound("what was restored from "+what, restored)
	_ = os.Remove(restored)
}

func (b *backupper) isSound(what, path string) bool {
	report, err := boltops.Verify(path, nil)
	if err = errors.Join(err, report.Err()); err != nil {
		b.world.breach("nothing is wrong with a file that is closed", nil, "%s: %v", what, err)
	}
	return err == nil
}

// check verifies the closed file, if it exists.
func (b *backupper) check() {
	if _, err := os.Stat(b.world.path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if b.isSound("the file", b.world.path) {
		b.restoreClosed()
	}
}
