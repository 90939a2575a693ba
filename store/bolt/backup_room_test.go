package bolt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/internal/boltoption"
)

// Backup leaves the host the disk space that it needs. If there is too little space, Backup returns
// an error before it writes; if the space shrinks meanwhile, Backup stops with an error.
func TestBackup_LittleSpace_LeavesItToPublishers(t *testing.T) {
	dir := t.TempDir()
	var freeRoom func(*os.File) (int64, bool)
	s := mustOpen(t, filepath.Join(dir, "storage.db"), func(o *boltoption.Options) {
		o.System.FreeRoom = func(to *os.File) (int64, bool) { return freeRoom(to) }
	})
	defer func() { _ = s.Close() }()
	for i := range 30 {
		if _, err := s.Enqueue(t.Context(), testEvent(i, 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := s.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	enough := info.Size() + leftRoom
	for name, test := range map[string]struct {
		free    []int64 // results of freeRoom, in order
		refused bool
	}{
		"no room":                   {[]int64{0}, true},
		"room for the copy alone":   {[]int64{info.Size() + leftRoom/2}, true},
		"room that others take":     {[]int64{enough, enough / 2, 0}, true},
		"room":                      {[]int64{enough}, false},
		"room that cannot be known": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			written, asked := int64(0), 0
			freeRoom = func(to *os.File) (int64, bool) {
				if len(test.free) == 0 {
					return 0, false
				}
				if asked == 0 {
					of, err := to.Stat()
					if err != nil {
						t.Error(err)
					}
					written = of.Size()
				}
				asked++
				return test.free[min(asked, len(test.free))-1], true
			}
			var out bytes.Buffer
			_, err := s.Backup(t.Context(), &out)
			if refused := err != nil; refused != test.refused || refused && (!errors.Is(err, syscall.ENOSPC) || out.Len() > 0) {
				t.Errorf("Backup = %v, after %d bytes were given out; want one that is %v: %v", err, out.Len(), syscall.ENOSPC, test.refused)
			}
			if written != 0 {
				t.Errorf("%d bytes were written before the room was asked for", written)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
				t.Errorf("there are %v, %v, want the file alone", files, err)
			}
			if _, err := s.Enqueue(t.Context(), testEvent(100+asked, 10)); err != nil {
				t.Errorf("publishing afterwards: %v", err)
			}
		})
	}
}
