package bolt

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// TestRootIsMerged checks that the root bucket is merged into one page once it fits. Each commit
// writes the root bucket, which contains small buckets inline, and bbolt never merges its pages
// after a split.
func TestRootIsMerged(t *testing.T) {
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), driver.Webhook{ID: "wh_1", Account: "acct", Events: []driver.EventType{alerts.TypeBalanceLow}, WebhookHealth: driver.WebhookHealth{Active: true}}, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	isSplit := func() bool {
		t.Helper()
		var split bool
		err := s.writer.Run(t.Context(), func(b *batch) error {
			split = pagefile.RootIsSplit(b.tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return split
	}
	small := [][]byte{schema.Attempts, schema.DueAlerts, schema.Expiry, schema.Held, schema.Keys, schema.Off, schema.Skipped, schema.WebhookIDs}
	key := []byte{255, 255, 255, 255, 255, 255, 255, 255}
	change := func(value []byte) {
		t.Helper()
		err := s.writer.Run(t.Context(), func(b *batch) error {
			for _, name := range small {
				if err := b.tx.Bucket(name).SetSequence(uint64(len(name))); err != nil {
					return err
				}
				if err := b.Put(name, key, value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	purge := func() {
		t.Helper()
		for more := true; more; {
			var err error
			if more, err = s.Purge(t.Context(), driver.Purge{Limit: 100}); err != nil {
				t.Fatal(err)
			}
		}
	}
	change(make([]byte, 900))
	if !isSplit() {
		t.Fatal("what is in small buckets did not split the root: the test tests nothing")
	}
	purge()
	if !isSplit() {
		t.Fatal("the root is one page, with more than a page in it")
	}
	change([]byte("value"))
	if !isSplit() {
		t.Fatal("bbolt has merged the root by itself: the test tests nothing")
	}
	before := contents(t, s)
	s.mergeRoot(t.Context())
	if diff := cmp.Diff(before, contents(t, s)); diff != "" {
		t.Errorf("what is in the file (-before +after):\n%s", diff)
	}
	change(make([]byte, 900))
	change([]byte("value"))
	if !isSplit() {
		t.Fatal("the root was not split again: the test tests nothing")
	}
	purge()
	if isSplit() {
		t.Error("the root has several pages after a purge, but would fit in one")
	}
}

// contents returns all rows by bucket, and the sequences of the buckets.
func contents(t *testing.T, s *engine) map[string]map[string]string {
	all := make(map[string]map[string]string)
	err := s.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			rows := map[string]string{"sequence": fmt.Sprint(bucket.Sequence())}
			all[string(name)] = rows
			return bucket.ForEach(func(k, v []byte) error {
				rows[string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// With the race detector, the test checks that a purge does not read memory that concurrent commits
// write.
func TestRootIsMerged_ConcurrentCommits_DoNotRace(t *testing.T) {
	s := openTemp(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 50 {
			if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(i), Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if _, err := s.Purge(t.Context(), driver.Purge{Limit: 100}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}
