package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
)

func init() {
	roles["fill"], roles["backup full"] = fillDisk, backUpWithoutRoom
	roles["restore full"] = restoreWithoutRoom
}

// limit limits the size of the files that this process writes. Writes beyond the limit fail, as on
// a full disk.
func limit(bytes uint64) error {
	signal.Ignore(syscall.SIGXFSZ)
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		return err
	}
	r.Cur = min(bytes, r.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &r)
}

// TestFullDisk makes a process fill a file until the system refuses to extend it. Afterwards, the
// file must contain everything acknowledged and nothing that was refused. The store must work again
// once there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "fill", dir)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	defer func() { _ = s.Close() }()
	stored, refused := 0, 0
	for line := range strings.Lines(out.String()) {
		outcome, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, err := s.EventDeliveries(t.Context(), "acct", id)
		switch {
		case outcome == "stored" && err == nil:
			stored++
		case outcome == "refused" && errors.Is(err, apierr.ErrNotFound):
			refused++
		default:
			t.Errorf("%s was %s: %v", id, outcome, err)
		}
	}
	t.Logf("%d stored, %d refused", stored, refused)
	if stored == 0 || refused == 0 {
		t.Error("the disk was not filled: the test tests nothing")
	}
}

// fillDisk publishes until the file cannot grow, tries to publish a few more times, and publishes
// once more after it has lifted the limit.
func fillDisk(path string) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	if err := limit(1 << 20); err != nil {
		return err
	}
	failures := 0
	publish := func(i int) error {
		id := fmt.Sprint("event-", i)
		_, err := s.Enqueue(context.Background(), driver.EncodedEvent{
			ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, 16<<10),
		})
		outcome := "stored"
		if err != nil {
			outcome = "refused"
			failures++
		}
		fmt.Println(outcome, id)
		return err
	}
	for i := 0; failures < 5; i++ {
		_ = publish(i)
	}
	if err := limit(1 << 40); err != nil {
		return err
	}
	if err := publish(1_000_000); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	return s.Close()
}

// The test checks that Backup returns an error if there is no room for the copy, and that the store
// keeps working.
func TestBackup_DiskFull_ReturnsError(t *testing.T) {
	dir := t.TempDir()
	if err := child(t, "backup full", dir).Run(); err != nil {
		t.Fatal(err)
	}
	onlyTheFile(t, dir)
}

func backUpWithoutRoom(path string) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	for i := range 8 {
		if err := publishTo(s, fmt.Sprint(strings.Repeat("x", 100), i)); err != nil {
			return err
		}
	}
	if err := limit(32 << 10); err != nil {
		return err
	}
	if _, err := s.Backup(context.Background(), io.Discard); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("a backup without room: %w", err)
	}
	if err := limit(1 << 40); err != nil {
		return err
	}
	if err := publishTo(s, "afterwards"); err != nil {
		return err
	}
	return s.Close()
}

// The test restores with less and less room. Restore must leave either no file or a complete one.
func TestRestore_DiskFull_LeavesNoOrCompleteFile(t *testing.T) {
	h := newLostHost(t)
	if err := child(t, "restore full", h.dir).Run(); err != nil {
		t.Fatal(err)
	}
	wantAlone(t, h)
}

func restoreWithoutRoom(path string) error {
	dir := filepath.Dir(path)
	refused, restored := 0, 0
	for room := uint64(256 << 10); room > 0; room -= 4 << 10 {
		if err := limit(room); err != nil {
			return err
		}
		_, err := boltops.Restore(path, filepath.Join(dir, "backup.db"), boltops.Fence{Abandoned: filepath.Join(dir, "abandoned.db")})
		left, _ := filepath.Glob(path + "*")
		switch {
		case err == nil && len(left) == 1:
			restored++
			if err := os.Remove(path); err != nil {
				return err
			}
		case err != nil && strings.Contains(err.Error(), syscall.EFBIG.Error()) && len(left) == 0: // bbolt's error does not wrap it
			refused++
		default:
			return fmt.Errorf("with room for %d bytes %v is there: %w", room, left, err)
		}
	}
	if refused == 0 || restored == 0 {
		return fmt.Errorf("refused %d times, restored %d times: the test tests nothing", refused, restored)
	}
	return nil
}
