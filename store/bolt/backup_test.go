package bolt_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// openBackup writes a backup to a new file and opens it.
func openBackup(t *testing.T, backup []byte) *bolt.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "restored.db")
	if err := os.WriteFile(path, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	verify(t, path)
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		verify(t, path)
	})
	return s
}

func publishTo(s store.Store, id string) error {
	_, err := s.Enqueue(context.Background(), driver.EncodedEvent{
		ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: bytes.Repeat([]byte(id), 100),
	})
	return err
}

// TestBackup makes several backups at once while events are published to the file. Each copy must
// contain every event acknowledged before Backup was called.
func TestBackup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir).(*bolt.Store)
	defer func() { _ = s.Close() }()
	var published atomic.Int64 // number of acknowledged events
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := publishTo(s, fmt.Sprint("event-", i)); err != nil {
				t.Error(err)
				return
			}
			published.Store(i + 1)
		}
	})
	for published.Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	var backups sync.WaitGroup
	for range 3 {
		backups.Go(func() {
			for range 3 {
				before, began := published.Load(), time.Now()
				var copied bytes.Buffer
				info, err := s.Backup(t.Context(), &copied)
				if err != nil {
					t.Error(err)
					return
				}
				want := bolt.BackupInfo{
					Bytes: int64(copied.Len()), SHA256: sha256.Sum256(copied.Bytes()), Schema: info.Schema,
					At: info.At, LastPublished: info.LastPublished, Duration: info.Duration,
				}
				if diff := cmp.Diff(want, info); diff != "" {
					t.Errorf("info (-want +got):\n%s", diff)
				}
				if info.Schema != 1 || info.At.Before(began) || info.LastPublished.After(info.At) || info.LastPublished.IsZero() || info.Duration <= 0 {
					t.Errorf("info %+v", info)
				}
				restored := openBackup(t, copied.Bytes())
				for i := range before {
					if _, err := restored.EventDeliveries(t.Context(), "acct", fmt.Sprint("event-", i)); err != nil {
						t.Errorf("event %d of %d: %v", i, before, err)
						break
					}
				}
			}
		})
	}
	backups.Wait()
	close(stop)
	wg.Wait()
	onlyTheFile(t, dir)
}

func onlyTheFile(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("next to the file: %v, %v", entries, err)
	}
}

// The test checks that a backup contains alerts that are in memory only, and that the store still
// has them afterwards.
func TestBackup_IncludesDeferredAlerts(t *testing.T) {
	s := open(t, t.TempDir()).(*bolt.Store)
	defer func() { _ = s.Close() }()
	update := func(s store.Store, account, state string) (was string) {
		t.Helper()
		_, err := s.UpdateAlert(t.Context(), account, "series", func(step *driver.AlertStep) error {
			was = string(step.State)
			if state != "" {
				step.State, step.Deferrable = []byte(state), strings.HasPrefix(state, "deferred")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return was
	}
	const accounts = 100
	account := func(i int) string { return fmt.Sprint("acct-", i) }
	for i := range accounts {
		update(s, account(i), "stored")
		update(s, account(i), "deferred")
	}
	for turn := range 2 {
		var copied bytes.Buffer
		if _, err := s.Backup(t.Context(), &copied); err != nil {
			t.Fatal(err)
		}
		restored := openBackup(t, copied.Bytes())
		want := []string{"deferred", "deferred again"}[turn]
		for i := range accounts {
			if got := update(restored, account(i), ""); got != want {
				t.Fatalf("backup %d has %q of account %d, want %q", turn, got, i, want)
			}
			if got := update(s, account(i), "deferred again"); got != want {
				t.Fatalf("after backup %d the store has %q of account %d, want %q", turn, got, i, want)
			}
		}
	}
}

// A writerFunc is an io.Writer that calls a function.
type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// The test checks that a failed backup leaves no file, that the store keeps working, and that the
// error names the cause.
func TestBackup_Fails_LeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir).(*bolt.Store)
	defer func() { _ = s.Close() }()
	for i := range 50 {
		if err := publishTo(s, fmt.Sprint(strings.Repeat("x", 100), i)); err != nil { // in total more than a copied chunk
			t.Fatal(err)
		}
	}
	errPipe := errors.New("the pipe is broken")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	midway, cancelMidway := context.WithCancel(t.Context())
	for name, test := range map[string]struct {
		ctx   context.Context
		write writerFunc
		want  error
	}{
		"a writer that fails":     {t.Context(), func(p []byte) (int, error) { return 1, errPipe }, errPipe},
		"a writer that cuts":      {t.Context(), func(p []byte) (int, error) { return 1, nil }, io.ErrShortWrite},
		"a context that ended":    {ended, func(p []byte) (int, error) { return len(p), nil }, context.Canceled},
		"a context ended midway":  {midway, func(p []byte) (int, error) { cancelMidway(); return len(p), nil }, context.Canceled},
		"a writer that panics":    {t.Context(), func(p []byte) (int, error) { panic("a bug of the host's") }, nil},
		"a writer that is cut in": {t.Context(), func(p []byte) (int, error) { return 0, io.ErrClosedPipe }, io.ErrClosedPipe},
	} {
		t.Run(name, func(t *testing.T) {
			func() {
				defer func() { _ = recover() }()
				info, err := s.Backup(test.ctx, test.write)
				if test.want == nil || !errors.Is(err, test.want) || info != (bolt.BackupInfo{}) {
					t.Errorf("Backup = %+v, %v, want %v", info, err, test.want)
				}
			}()
			onlyTheFile(t, dir)
			if err := publishTo(s, name); err != nil {
				t.Error(err)
			}
		})
	}
}

// While Backup waits for a slow writer, the store can reuse freed pages of the file.
func TestBackup_SlowWriter_PagesAreReused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir).(*bolt.Store)
	defer func() { _ = s.Close() }()
	scan := func() {
		err := s.UpdateScan(t.Context(), func(state []byte) ([]byte, error) {
			return bytes.Repeat([]byte{state0(state) + 1}, 64<<10), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		scan()
	}
	var before, after int64
	once := sync.Once{}
	_, err := s.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
		once.Do(func() {
			before = sizeOf(t, filepath.Join(dir, "storage.db"))
			for range 100 {
				scan() // writes 64 KiB
			}
			after = sizeOf(t, filepath.Join(dir, "storage.db"))
		})
		return len(p), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if after > before+1<<20 {
		t.Errorf("the file grew from %d to %d bytes while its copy was read", before, after)
	}
}

func state0(state []byte) byte {
	if len(state) == 0 {
		return 0
	}
	return state[0]
}

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestBackupRemovesLeftovers checks that the next Open, and the next Backup, remove the temporary
// files of a killed process, but not similarly named files of the host.
func TestBackupRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "storage.db.backing-up-on-monday")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir).(io.Closer).Close()
	if err := os.Remove(own); err != nil {
		t.Error(err)
	}
	leave := func() {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "storage.db.backing-up-123"), []byte("a part"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	s := open(t, dir).(*bolt.Store)
	defer func() { _ = s.Close() }()
	onlyTheFile(t, dir)
	leave()
	if _, err := s.Backup(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	onlyTheFile(t, dir)
}

// Backup works on a halted store, and fails on a closed store.
func TestBackup_HaltedStore_Succeeds(t *testing.T) {
	var disk boltfault.Disk
	s := openWith(t, t.TempDir(), disk.Option).(*bolt.Store)
	if err := publishTo(s, "before"); err != nil {
		t.Fatal(err)
	}
	disk.Around(func(func() error) error { return errors.New("the disk failed") })
	if err := publishTo(s, "never"); err == nil || s.Halted() == nil {
		t.Fatalf("the store is not halted: %v", err)
	}
	var copied bytes.Buffer
	if _, err := s.Backup(t.Context(), &copied); err != nil {
		t.Fatal(err)
	}
	restored := openBackup(t, copied.Bytes())
	if _, err := restored.EventDeliveries(t.Context(), "acct", "before"); err != nil {
		t.Error(err)
	}
	if err := publishTo(restored, "never"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), io.Discard); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a backup of a closed store: %v", err)
	}
}
