package bolt

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// TestDamagedAlerts checks that damaged alerts in a file are treated as missing.
func TestDamagedAlerts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	keep := func(state string) (found string) {
		t.Helper()
		s, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		_, err = s.UpdateAlert(t.Context(), "acct", "metric", func(step *driver.AlertStep) error {
			found, step.State = string(step.State), []byte(state)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return found
	}
	keep("1")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(schema.Alerts).Put(record.Prefixed("acct", "metric"), []byte{99})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if found := keep("2"); found != "" {
		t.Errorf("found %q where the value is damaged", found)
	}
	if found := keep("3"); found != "2" {
		t.Errorf("found %q, want what was kept since", found)
	}
}

// A report that changes nothing returns without waiting for steps that write.
func TestReport_NothingChanges_DoesNotWait(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	update := func(account, state string) error {
		_, err := s.UpdateAlert(t.Context(), account, "metric", func(step *driver.AlertStep) error {
			step.State = []byte(state)
			return nil
		})
		return err
	}
	if err := update("known", "state"); err != nil {
		t.Fatal(err)
	}
	err = s.writer.Run(context.Background(), func(*batch) error { // blocks other steps meanwhile
		return errors.Join(update("known", "state"), update("unknown", ""))
	})
	if err != nil {
		t.Error(err)
	}
}

// Steps sharing a commit see each other's changes, including changes to alerts that are in memory
// only.
func TestAlerts_StepsOfOneBatch_SeeEachOther(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	keep := func(state string, deferred bool) func(*driver.AlertStep) error {
		return func(step *driver.AlertStep) error {
			step.State, step.Deferrable = []byte(state), deferred
			return nil
		}
	}
	for _, step := range []func(*driver.AlertStep) error{keep("hard", false), keep("deferred", true)} {
		if _, err := s.UpdateAlert(t.Context(), "acct", "metric", step); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	err = s.writer.Run(t.Context(), func(b *batch) error {
		for range 2 {
			_, err := s.updateAlert(b, record.Prefixed("acct", "metric"), "acct", func(step *driver.AlertStep) error {
				found = append(found, string(step.State))
				step.State = []byte("hard") // the state that the file has
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !slices.Equal(found, []string{"deferred", "hard"}) {
		t.Errorf("the steps found %q, %v", found, err)
	}
}

// The test reports a deferrable state of an alert while a step writes another state of the same
// alert. The later report must win. So the report must wait for the step, which would otherwise
// overwrite the deferred state when it ends.
func TestUpdateAlert_DeferredDuringAWrite_IsNotLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	later, asked := make(chan error, 1), make(chan struct{})
	report := func() {
		first := true
		_, err := s.UpdateAlert(t.Context(), "acct", "metric", func(step *driver.AlertStep) error {
			if first {
				first = false
				close(asked) // the cache stays locked until it has decided whether to defer
			}
			step.State, step.Deferrable = []byte("later"), true
			return nil
		})
		later <- err
	}
	calls := 0
	_, err = s.UpdateAlert(t.Context(), "acct", "metric", func(step *driver.AlertStep) error {
		if calls++; calls == 2 { // the cache calls first, then the step
			go report()
			<-asked
		}
		step.State = []byte("earlier")
		return nil
	})
	if err := errors.Join(err, <-later); err != nil {
		t.Fatal(err)
	}
	if calls != 2 {
		t.Fatalf("the change was called %d times, want twice", calls)
	}
	state := func() (found string) {
		t.Helper()
		_, err := s.UpdateAlert(t.Context(), "acct", "metric", func(step *driver.AlertStep) error {
			found = string(step.State)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return found
	}
	if got := state(); got != "later" {
		t.Errorf("state = %q, want %q", got, "later")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = open(path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if got := state(); got != "later" {
		t.Errorf("state after Close and Open = %q, want %q", got, "later")
	}
}
