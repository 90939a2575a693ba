package requests_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A requestFile is a file with requests.
type requestFile struct {
	*testing.T
	*requests.Requests
	db *bbolt.DB
}

func newFile(t *testing.T) *requestFile {
	path := filepath.Join(t.TempDir(), "storage.db")
	if err := schema.CreateFile(path); err != nil {
		t.Fatal(err)
	}
	db, _, err := pagefile.Open(path, time.Now(), &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &requestFile{t, requests.New(), db}
}

// step runs a step in a transaction, which is undone if the step fails.
func (f *requestFile) step(do func(*groupcommit.Tx) error) error {
	err := f.db.Update(func(tx *bbolt.Tx) error { return do(&groupcommit.Tx{Bolt: tx}) })
	outcome := mirror.Applied
	if err != nil {
		outcome = mirror.Undone
	}
	f.End(outcome)
	return err
}

// request makes a request like the store, and returns its error.
func (f *requestFile) request(kind requests.Kind, account, name string, most int) error {
	return f.step(func(tx *groupcommit.Tx) error {
		options := &driver.CreateOptions{IdempotencyKey: name, IdempotencyTTL: 24 * time.Hour, MaxIdempotencyKeys: most, By: auth.Credential{KeyID: "key_" + name}}
		if err := requests.Repeated(tx.Bolt, kind, account, options); err != nil {
			return err
		}
		if err := f.Check(tx, kind, account, options); err != nil {
			return err
		}
		return f.Note(tx, kind, account, "id_"+name, options)
	})
}

// stored returns the number of rows by key and the number of rows by time.
func (f *requestFile) stored() (n [2]int) {
	f.Helper()
	err := f.db.View(func(tx *bbolt.Tx) error {
		n = [2]int{rows.Count(tx.Bucket(schema.Requests), nil), rows.Count(tx.Bucket(schema.RequestTimes), nil)}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	return n
}

// The test makes requests for ten days, sometimes many at once. At the end, hardly more than the
// requests of one day may be stored.
func TestNote_TenDays_KeepsRequestsOfOneDay(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		f := newFile(t)
		request := func(name string) {
			for _, kind := range requests.Kinds {
				if err := f.request(kind, "acct", name, 0); err != nil {
					t.Fatalf("request %s: %v", name, err)
				}
			}
		}
		for i := range 100 {
			request(fmt.Sprint("burst ", i))
		}
		const aDay = 24
		for hour := range 10 * aDay {
			request(fmt.Sprint(hour))
			if hour > aDay && hour%(aDay+2) == 0 {
				request(fmt.Sprint(hour - aDay - 1)) // repeats an expired request
			}
			time.Sleep(time.Hour)
		}
		if got := f.stored(); got[0] > 2*(aDay+3) || got[1] > 2*(aDay+4) || got[0] < 2*aDay {
			t.Errorf("%d requests and %d times are kept, want about %d", got[0], got[1], 2*aDay)
		}
	})
}

// The test makes more requests than an account may have. Other accounts and kinds have limits of
// their own.
func TestCheck_AccountAtLimit_RefusesUntilRequestsExpire(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		const most = 3
		f := newFile(t)
		for i := range most {
			if err := f.request(requests.Key, "acct", fmt.Sprint(i), most); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		for range 2 { // the second call gets its answer from memory
			if err := f.request(requests.Key, "acct", "one more", most); !errors.Is(err, apierr.ErrIdempotencyKeys) {
				t.Errorf("at the limit: %v, want %v", err, apierr.ErrIdempotencyKeys)
			}
		}
		var duplicate *driver.DuplicateRequestError
		if err := f.request(requests.Key, "acct", "0", most); !errors.As(err, &duplicate) || duplicate.ID != "id_0" {
			t.Errorf("repeated at the limit: %v, want the ID of the first", err)
		}
		if err := errors.Join(f.request(requests.Webhook, "acct", "0", most), f.request(requests.Key, "other", "0", most)); err != nil {
			t.Errorf("other kind and account: %v", err)
		}
		time.Sleep(22 * time.Hour) // the first request has expired
		if err := f.request(requests.Key, "acct", "one more", most); err != nil {
			t.Errorf("after the first request has expired: %v", err)
		}
	})
}

// The test removes the requests of a deleted key and of an erased account.
func TestForgetOfAndErase_Requests_AreRemovedAndNotCounted(t *testing.T) {
	f := newFile(t)
	for _, account := range []string{"acct", "other"} {
		for _, name := range []string{"a", "b"} {
			for _, kind := range requests.Kinds {
				if err := f.request(kind, account, name, 2); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := f.step(func(tx *groupcommit.Tx) error { return f.ForgetOf(tx, "acct", "key_a") }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([2]int{6, 6}, f.stored()); diff != "" {
		t.Errorf("rows after ForgetOf (-want +got):\n%s", diff)
	}
	erased := 0
	for range 2 {
		err := f.step(func(tx *groupcommit.Tx) error {
			n, err := f.Erase(tx, requests.Key, "other", 1)
			erased += n
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := f.stored(); erased != 2 || got[0] != 4 {
		t.Errorf("erased %d, %d are left; want 2 and 4", erased, got[0])
	}
	// The removed requests no longer count toward the limits.
	for _, account := range []string{"acct", "other"} {
		if err := f.request(requests.Key, account, "a", 2); err != nil {
			t.Errorf("request of %s: %v", account, err)
		}
	}
}
