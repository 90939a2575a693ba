package bolt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/boltfault"
)

// The test purges a file and publishes to it. For each commit, it opens the file as a kill would
// leave it before and after the meta page is written.
func TestParking_KilledInCommit_FileIsIntact(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "storage.db")
	var disk boltfault.Disk
	s, err := open(path, disk.Option)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 2500)
	metas := 2 * s.db.Info().PageSize
	spared := 0
	commits := 0
	disk.Around(func(commit func() error) error {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if err := commit(); err != nil {
			return err
		}
		if commits++; commits%3 > 0 {
			return nil
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if spareInKilled(t, after) > 0 {
			spared++
		}
		copy(after[:metas], before)
		spareInKilled(t, after)
		return nil
	})
	purgeEverything(t, s)
	publishFrom(t, s, 2500, 4000)
	if t.Logf("%d commits, %d with spare pages", commits, spared); spared < 5 {
		t.Errorf("%d commits with spare pages", spared)
	}
}

// spareInKilled opens and uses a file, and returns the number of its spare pages.
func spareInKilled(t *testing.T, file []byte) int {
	path := filepath.Join(t.TempDir(), "killed.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Error(err)
	}
	s, err := open(path)
	if err != nil {
		t.Error(err)
		return 0
	}
	state := spareOf(t, s)
	if _, err := s.Enqueue(context.Background(), spareEvent(9999)); err != nil {
		t.Error(err)
	}
	spareOf(t, s)
	if err := errors.Join(s.Close(), os.Remove(path)); err != nil {
		t.Error(err)
	}
	return state.spare
}

func TestParking_OtherPageSizes(t *testing.T) {
	for _, size := range []int{1 << 10, 8 << 10} {
		path := filepath.Join(t.TempDir(), "storage.db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: size})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		publishFrom(t, s, 0, 5000)
		purgeEverything(t, s)
		publishFrom(t, s, 5000, 5400)
		purgeEverything(t, s)
		state := spareOf(t, s)
		if s.db.Info().PageSize != size || state.spare == 0 || state.listed > s.atMostParked() {
			t.Errorf("pages of %d bytes: %+v", s.db.Info().PageSize, state)
		}
		t.Logf("pages of %d bytes: %+v", s.db.Info().PageSize, state)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
