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
)

// A backupper makes backups of the file at random moments of the story, two within some minutes.
// Each is sound, and is restored; no earlier one is believed to be what came after it.
type backupper struct {
	*actor
	last     atomic.Pointer[string] // the path of the last backup; nil: none
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

// backUp makes a backup, verifies and restores it. It may fail while the disk does, or as the
// store is closed.
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
	b.restore("a backup", path, bolt.Fence{NothingRevoked: true})
	if earlier != nil {
		b.confuse(path, *earlier)
	}
}

// confuse restores a backup as if an earlier one were the abandoned file. That is refused, or what
// was deleted between the two would be there again, unless nothing was written between them: a store
// that is halted cannot mark its clock.
func (b *backupper) confuse(path, earlier string) {
	w := b.world
	restored := fmt.Sprint(w.path, ".restored-", b.restored.Add(1))
	info, err := bolt.Restore(restored, path, bolt.Fence{Abandoned: earlier})
	_ = os.Remove(restored)
	taken := info.KeysTaken + info.KeysDeleted + info.WebhooksTaken + info.WebhooksDeleted + info.DeliveriesSettled + info.EventsCarried
	if !errors.Is(err, bolt.ErrUnfenced) && (err != nil || taken > 0) {
		w.breach("no file that is older than the backup is believed", nil, "%s restored with %s as the abandoned file: %+v, %v",
			filepath.Base(path), filepath.Base(earlier), info, err)
	}
}

// restoreClosed restores the last backup from the file, which is closed: nothing is lost.
func (b *backupper) restoreClosed() {
	last := b.last.Load()
	if last == nil {
		return
	}
	info := b.restore("a backup and the file", *last, bolt.Fence{Abandoned: b.world.path})
	if len(info.Unreadable) > 0 || info.EventsLost != (bolt.LostEvents{Known: true}) {
		b.world.breach("a sound abandoned file is read", nil, "%+v", info)
	}
}

// restore restores a backup.
func (b *backupper) restore(what, from string, fence bolt.Fence) bolt.RestoreInfo {
	w := b.world
	restored := fmt.Sprint(w.path, ".restored-", b.restored.Add(1))
	info, err := bolt.Restore(restored, from, fence)
	if err != nil {
		w.breach("a backup is restored", nil, "%s: %v", what, err)
		return info
	}
	b.isSound("what was restored from "+what, restored)
	_ = os.Remove(restored)
	return info
}

func (b *backupper) isSound(what, path string) bool {
	report, err := bolt.Verify(path)
	if err = errors.Join(err, report.Err()); err != nil {
		b.world.breach("nothing is wrong with a file that is closed", nil, "%s: %v", what, err)
	}
	return err == nil
}

// check verifies the file, which is closed, if there is one yet.
func (b *backupper) check() {
	if _, err := os.Stat(b.world.path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if b.isSound("the file", b.world.path) {
		b.restoreClosed()
	}
}
