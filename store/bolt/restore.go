package bolt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/salvage"
)

// ErrUnfenced is wrapped by the error of [Restore] where the [Fence] does not tell what was
// revoked since the backup, and the abandoned file does not either.
var ErrUnfenced = errors.New("it is not known what was revoked since the backup")

// A Fence tells what a restored file must not bring back. Its zero value is refused with
// [ErrUnfenced]: give one or more of Abandoned, DeletedKeys and RotatedKeys, or say
// NothingRevoked.
type Fence struct {
	// Abandoned is the path of the file that the restored one replaces, if there still is
	// one, even one that is damaged. It must be closed, and is only read. Keys and webhooks
	// become what they are there: those deleted since are deleted, rotated and changed ones
	// are as they were left, new ones are there. What was delivered or given up since is
	// settled, events published since are carried over, and alerts that were sent since are
	// not sent again. What of it cannot be read is in [RestoreInfo.Unreadable]. One that is older
	// than the backup counts as one that cannot be read; the backup itself is refused.
	Abandoned string

	// DeletedKeys are the keys that were deleted since, as the host's own records have
	// them. They are deleted, also if the abandoned file has them. Those that are not there
	// change nothing.
	DeletedKeys []Ref

	// RotatedKeys are the keys whose value was replaced since. A backup does not have the
	// new value, so unless the abandoned file has another one, and all of its commits, no value of the key is valid any more:
	// the key stays, and has to be rotated to get one. Name only those rotated since the
	// backup, or values that are in use die.
	RotatedKeys []Ref

	// DeletedWebhooks are the webhooks that were deleted since. They are deleted, with what
	// is pending for them.
	DeletedWebhooks []Ref

	// ErasedAccounts are the accounts that were erased since. All that the backup has of them is
	// erased, before anything is taken over: what the abandoned file has of them is newer.
	// Those whose erasure the backup or the abandoned file has begun are erased, too.
	ErasedAccounts []string

	// NothingRevoked says that no key was deleted or rotated since the backup.
	NothingRevoked bool

	// NoHold declines that all webhooks are put on hold. What was delivered since the
	// backup, and is not settled by the abandoned file, is sent again then as soon as the
	// host runs.
	NoHold bool

	// RefuseDamaged refuses a backup in which [Verify] finds anything wrong. Without it one whose
	// pages fit is restored, and its damaged rows are in [RestoreInfo.Damaged].
	RefuseDamaged bool

	// Report, unless it is nil, is called with each thing that was found or done, so that
	// nothing is lost silently: one call at a time, before Restore returns. If Restore
	// fails nothing of it is true.
	Report func(Finding)
}

// A Ref names a key or a webhook.
type Ref struct{ Account, ID string }

// A Finding is a thing that [Restore] found, or did.
type Finding struct {
	Kind    FindingKind
	Account string
	ID      string // of the key, the webhook or the event
	Webhook string // of MayBeSentTwice: to which webhook
}

// A FindingKind is what a [Finding] is about.
type FindingKind string

// The kinds of findings.
const (
	KeyDeleted      FindingKind = "key deleted"         // it was deleted since the backup
	KeyDead         FindingKind = "key without a value" // its value was replaced since the backup, and the new one is not known
	KeyTaken        FindingKind = "key taken over"      // as the abandoned file has it
	WebhookDeleted  FindingKind = "webhook deleted"     // it was deleted since the backup
	WebhookTaken    FindingKind = "webhook taken over"  // as the abandoned file has it
	DeliverySettled FindingKind = "delivery settled"    // it was delivered or given up since; Webhook is to which
	MayBeSentTwice  FindingKind = "may be sent twice"   // a delivery that was pending at the time of the backup, and may have been sent since
	EventCarried    FindingKind = "event carried over"  // it was published since the backup
	AccountErased   FindingKind = "account erased"      // it was erased since
	EventLost       FindingKind = "event lost"          // it was published since the backup, and its body cannot be read
)

// LostEvents counts events that were published since the backup and are not in the restored file.
// Those whose bodies were purged in the abandoned file are not lost.
type LostEvents struct {
	AtLeast int  // each was reported as an EventLost
	Known   bool // there are no more; false without an abandoned file, and where its events cannot all be read
}

// String returns the number, "at least" it, or "not known".
func (l LostEvents) String() string {
	switch {
	case l.Known:
		return strconv.Itoa(l.AtLeast)
	case l.AtLeast > 0:
		return "at least " + strconv.Itoa(l.AtLeast)
	}
	return "not known"
}

// A RestoreInfo counts what [Restore] did.
type RestoreInfo struct {
	LastPublished time.Time // when the newest event of the backup was published; zero if it has none

	KeysDeleted, KeysDead, KeysTaken             int
	WebhooksHeld, WebhooksDeleted, WebhooksTaken int
	DeliveriesSettled, MayBeSentTwice            int
	EventsCarried                                int
	EventsLost                                   LostEvents
	AccountsErased                               int

	// Damaged are the first 100 rows of the backup that [Verify] finds damaged, and MoreDamaged is how
	// many there are besides. They are in the restored file as they are, but for keys that the file
	// does not find by their ids: those are deleted, since nobody could revoke them.
	Damaged     []Problem
	MoreDamaged int

	// Unreadable are the parts of the abandoned file that could not be read, at least in
	// part. What is in there is as it was at the time of the backup.
	Unreadable []string
}

// restoreSuffix is what the name of the temporary file of Restore has after the file's.
const restoreSuffix = ".restoring-"

// Restore makes a file at path out of a backup, one of [Store.Backup] or a copy that was made
// while the file was closed, that brings nothing back that the fence tells. Nothing may be at
// path: move the abandoned file aside, and name it in [Fence.Abandoned]. Use the file only by
// way of Restore: a backup that is opened itself revives keys that were revoked, and sends
// again what was delivered since.
//
// All webhooks of the restored file are on hold, unless the fence declines that: publishing
// works, and nothing is sent before webhooks.WebhookService.Release or ReleaseAll. Options are those of [Open], such as the keys of [Sealed].
//
// The file is made under another name, "<path>.restoring-…", made durable, and renamed: a
// process that is killed leaves no file at path, or the whole one. The next Restore removes
// what it left; it also ends one to the same path that is still under way. If Restore returns an error it has put nothing
// at path: it wraps [ErrUnfenced], [fs.ErrExist] if something was there, or is by now, [ErrLocked] if one of the files is in use, [ErrSchema] if the backup is
// not ours, or [Compact] or [Open] would refuse it as damaged, or the fence says RefuseDamaged and [Verify] finds anything wrong; [signing.ErrSealed] if it is sealed under a key that was not given, or what
// the disk returned. The backup stays as it is. Restore needs room for a second copy of it, and
// memory as Open does.
func Restore(path, from string, fence Fence, options ...Option) (RestoreInfo, error) {
	defer debug.SetPanicOnFault(catchFaults())
	info, err := restore(path, from, &fence, options)
	if err != nil {
		return RestoreInfo{}, fmt.Errorf("restore %s from %s: %w", path, from, err)
	}
	return info, nil
}

func restore(path, from string, fence *Fence, options []Option) (info RestoreInfo, err error) {
	listed := fence.NothingRevoked || len(fence.DeletedKeys)+len(fence.RotatedKeys) > 0
	if !listed && fence.Abandoned == "" {
		return info, fmt.Errorf("%w: name the abandoned file in Fence.Abandoned, list keys in Fence.DeletedKeys and Fence.RotatedKeys, or say Fence.NothingRevoked", ErrUnfenced)
	}
	if _, err := os.Lstat(path); err == nil {
		return info, fmt.Errorf("%w: move it aside, and name it in Fence.Abandoned", fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	backup, err := os.Stat(from)
	if err != nil {
		return info, err
	}
	if abandoned, err := os.Stat(fence.Abandoned); err == nil && os.SameFile(backup, abandoned) {
		return info, fmt.Errorf("%w: Fence.Abandoned is the backup itself", ErrUnfenced)
	}
	removeTemporary(path, restoreSuffix)
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+restoreSuffix+"*")
	if err != nil {
		return info, err
	}
	temporary := file.Name()
	defer func() {
		_ = file.Close()
		_ = os.Remove(temporary)
	}()
	report, err := copyClosed(file, from)
	if err == nil && fence.RefuseDamaged {
		err = report.Err()
	}
	if err != nil {
		return info, err
	}
	info.Damaged, info.MoreDamaged = report.Problems, report.More
	s, err := Open(temporary, options...)
	if err != nil {
		return info, err
	}
	if !sameFile(file, s.file) {
		return info, errors.Join(s.Close(), errors.New("another Restore to the same path was begun")) // it removed the copy
	}
	s.db.NoSync = true         // the file is worth nothing before it is complete
	s.spare.grow = math.MaxInt // or a step that finds no room for its pages would run again, and a fencer's run once
	f := &fencer{store: s, fence: fence, info: &info, gone: make(map[Ref]bool)}
	err = f.run(listed)
	if err == nil {
		err = s.db.Sync()
	}
	s.db.NoSync = false
	if err = errors.Join(err, s.Close()); err != nil {
		return info, err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return info, err
	}
	return info, publish(temporary, path)
}

// sameFile reports whether both are the same file, by whichever names.
func sameFile(a, b *os.File) bool {
	of, err := a.Stat()
	other, failed := b.Stat()
	return err == nil && failed == nil && os.SameFile(of, other)
}

// copyClosed copies a file that no process writes to, verifies the copy, and refuses one whose pages are damaged.
func copyClosed(to *os.File, from string) (report Report, err error) {
	// bbolt maps the file, and the system ends a process that reads there what it does not have.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = errDamaged(p)
		}
	}()
	until := time.Now().Add(defaultWait)
	if err := checkFile(from, until); err != nil {
		return report, err
	}
	source, _, err := openFile(from, until, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return report, err
	}
	defer func() { _ = source.Close() }() // until then it is locked
	if err := bothMetas(from); err != nil {
		return report, err
	}
	if err := copyBytes(to, from); err != nil {
		return report, err
	}
	copied, err := openReadOnly(to.Name())
	if err != nil {
		return report, err
	}
	defer copied.close()
	pages, err := copied.verify(&report, nil)
	if err == nil && pages {
		err = fmt.Errorf("%w: %s", errStructure, report.Problems[0])
	}
	return report, err
}

func copyBytes(to *os.File, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	_, err = io.Copy(to, source)
	return err
}

// bothMetas refuses a file whose last commit may be missing.
func bothMetas(path string) error {
	f, err := salvage.Open(path)
	if errors.Is(err, salvage.ErrUnreadable) {
		return errDamaged(err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if f.LastLost() {
		return errDamaged("a meta page cannot be read")
	}
	return nil
}
