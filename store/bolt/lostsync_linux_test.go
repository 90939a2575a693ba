package bolt_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

var (
	lostSyncs    = flag.Int("lost-syncs", 15, "how many processes TestLostSyncs has a sync fail in")
	lostSyncSeed = flag.Uint64("lost-syncs-seed", 1, "what it draws them with")
)

func init() {
	roles["change"] = func(path string) error { return changeKeys(path, 0) }
	roles["change again"] = func(path string) error { return changeKeys(path, 1) }
}

// killedBeforeSync kills the process at the start of a sync. The system still has the data, and
// writes it at the next sync.
const killedBeforeSync = "fdatasync:error=EIO:signal=KILL"

// diskFaults are the faults that strace injects. strace counts calls per thread, so a fault affects
// one call or a few.
var diskFaults = []string{"fdatasync:error=EIO", "fdatasync:error=EIO", killedBeforeSync, "pwrite64:error=ENOSPC", "fsync:error=EIO"}

const (
	keysBefore  = 40
	keysChanged = 12 // by each process
)

// TestLostSyncs makes a sync or a write of a real file fail, or kills the process during a commit.
// The process continues after the failed call, and another process follows. At many moments, the
// test simulates a power loss, after which the disk has a random part of the data written since the
// last sync. It must be possible to open the file, which must contain every change acknowledged by
// then and no refused change.
func TestLostSyncs(t *testing.T) {
	t.Parallel()
	if testbubble.Raced {
		t.Skip("opens hundreds of files, one after the other: runs without the race detector")
	}
	random := rand.New(rand.NewPCG(*lostSyncSeed, 0))
	files, metas, refused := 0, 0, 0
	scratch := filepath.Join(t.TempDir(), "storage.db")
	for run := range *lostSyncs {
		dir := t.TempDir()
		s := open(t, dir)
		for i := range keysBefore {
			if err := s.CreateKey(t.Context(), someKey("old", i), driver.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(dir, "storage.db"))
		if err != nil {
			t.Fatal(err)
		}
		d := newDisk(file)
		fault := diskFaults[run%len(diskFaults)]
		inject := fmt.Sprint(fault, ":when=", 1+run/len(diskFaults))
		calls := trace(t, "change", dir, inject)
		if fault == killedBeforeSync {
			calls = slices.DeleteFunc(calls, func(c osCall) bool { return c.failed })
		}
		restart, critical, before := len(calls), 0, refused // a power loss follows each call up to critical
		for i, c := range calls {
			if c.failed && c.name == "fdatasync" {
				if calls[i-1].name == "pwrite64" && calls[i-1].offset <= 4096 {
					metas++
				}
			}
			if c.name == "line" && strings.HasPrefix(string(c.data), "refused") {
				refused++
			}
		}
		if strings.HasPrefix(fault, "pwrite64") && refused > before {
			t.Errorf("run %d (%s): a write that failed made the store read-only", run, inject)
		}
		calls = append(calls, trace(t, "change again", dir, "")...)
		for i, c := range calls {
			d.do(c)
			if c.failed || i == restart {
				critical = i + 10
			}
			if c.name == "line" || i > critical && random.IntN(48) > 0 {
				continue
			}
			for range 2 {
				files++
				if what := d.check(t, scratch, d.afterPowerLoss(random)); what != "" {
					t.Errorf("run %d (%s), power lost after call %d, %s: %s", run, inject, i, c.name, what)
				}
			}
		}
	}
	t.Logf("%d processes, %d with a failed sync of the meta page, %d calls refused, %d files after a power loss; seed %d", *lostSyncs, metas, refused, files, *lostSyncSeed)
	if *lostSyncs >= 15 && (metas == 0 || refused == 0 || files < 100) {
		t.Error("the test tests too little")
	}
}

func someKey(name string, i int) driver.Key {
	key := driver.Key{ID: fmt.Sprint(name, i), Account: "acct"}
	copy(key.Hash.Sum[:], key.ID+" has this hash")
	return key
}

// changeKeys creates and deletes keys. It prints a line before and after each change.
func changeKeys(path string, turn int) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	say := func(what string, change string) { _, _ = os.Stdout.WriteString(what + " " + change + "\n") }
	do := func(change string, step func() error) {
		say("begin", change)
		switch err := step(); {
		case err == nil:
			say("done", change)
		case errors.Is(err, store.ErrReadOnly):
			say("refused", change)
		default:
			say("unsure", change)
		}
	}
	for i := range keysChanged {
		created, deleted := someKey(fmt.Sprint("new", turn, "-"), i), someKey("old", turn*keysChanged+i)
		do("+"+created.ID, func() error { return s.CreateKey(context.Background(), created, driver.CreateOptions{}) })
		do("-"+deleted.ID, func() error { return s.DeleteKey(context.Background(), "acct", deleted.ID, nil, audit.Entry{}) })
		_, _ = s.Enqueue(context.Background(), driver.EncodedEvent{ID: created.ID, Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, 12_000)})
	}
	return s.Close()
}

// A disk holds two versions of the file, in sectors: as processes see it, and as it is on disk. It
// also holds the outcomes of changes to keys.
type disk struct {
	seen, synced []byte
	unsynced     map[int]bool // sectors written since the last sync
	limbo        map[int]bool // sectors of a failed sync, which the system never writes again

	keys map[string]bool // by ID, whether the key exists; no entry if unknown
}

const sectorSize = 512

func newDisk(file []byte) *disk {
	d := &disk{seen: file, synced: append([]byte(nil), file...), unsynced: make(map[int]bool), limbo: make(map[int]bool), keys: make(map[string]bool)}
	for i := range keysBefore {
		d.keys[someKey("old", i).ID] = true
	}
	return d
}

func (d *disk) do(c osCall) {
	switch c.name {
	case "line":
		for line := range strings.Lines(string(c.data)) {
			what, change, _ := strings.Cut(strings.TrimSpace(line), " ")
			is := strings.HasPrefix(change, "+")
			switch id := change[1:]; what {
			case "begin", "unsure":
				delete(d.keys, id)
			case "done":
				d.keys[id] = is
			case "refused":
				d.keys[id] = !is
			}
		}
	case "pwrite64":
		if c.failed {
			return
		}
		d.grow(int(c.offset) + len(c.data))
		copy(d.seen[c.offset:], c.data)
		for at := int(c.offset) / sectorSize; at*sectorSize < int(c.offset)+len(c.data); at++ {
			d.unsynced[at] = true
			delete(d.limbo, at)
		}
	case "ftruncate":
		d.grow(int(c.offset))
	case "fsync", "fdatasync":
		for at := range d.unsynced {
			if c.failed {
				d.limbo[at] = true
			} else {
				d.write(d.synced, at)
			}
		}
		clear(d.unsynced)
	}
}

func (d *disk) grow(size int) {
	if n := size - len(d.seen); n > 0 {
		d.seen, d.synced = append(d.seen, make([]byte, n)...), append(d.synced, make([]byte, n)...)
	}
}

// write copies a sector of d.seen, the file as processes see it, to the same place in to.
func (d *disk) write(to []byte, at int) {
	end := min((at+1)*sectorSize, len(d.seen))
	copy(to[at*sectorSize:end], d.seen[at*sectorSize:end])
}

// afterPowerLoss returns the file on disk with none, some or all of the unsynced sectors.
func (d *disk) afterPowerLoss(random *rand.Rand) []byte {
	file := append([]byte(nil), d.synced...)
	for _, sectors := range []map[int]bool{d.limbo, d.unsynced} {
		share := []float64{0, 1, random.Float64()}[random.IntN(3)]
		for at := range len(d.seen)/sectorSize + 1 { // in order, so that seeds are repeatable
			if sectors[at] && random.Float64() < share {
				d.write(file, at)
			}
		}
	}
	return file
}

// check writes the file, opens it, and compares its keys with the expected ones. It returns a
// description of the difference, or "".
func (d *disk) check(t *testing.T, path string, file []byte) (wrong string) {
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := bolt.Open(path)
	if err != nil {
		return fmt.Sprint("the file does not open: ", err)
	}
	list, err := s.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 9999})
	_ = s.Close()
	if err != nil {
		return fmt.Sprint("the keys cannot be listed: ", err)
	}
	there := make(map[string]bool)
	for _, key := range list {
		there[key.ID] = true
	}
	for id, is := range d.keys {
		if there[id] != is {
			return fmt.Sprintf("%s is there: %v, and should be: %v", id, there[id], is)
		}
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = db.Close() }()
	_ = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			wrong = err.Error()
		}
		return nil
	})
	return wrong
}
