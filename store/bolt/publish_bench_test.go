package bolt_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkPublish measures WebhookService.Publish with fsync, with one webhook and several numbers
// of concurrent publishers. It compares Publish with a floor: a bare group-commit loop on bbolt, in
// which one goroutine drains a channel and commits rows in one transaction per drain. The rows have
// the same sizes and the same order of keys; some are written per event, others once for all events
// of a drain. Publish and the floor take turns. "of-floor" compares events per second.
// "x/floor-p50" compares the median time that a publisher waits; with a single publisher, the
// floor's time is the time of a bare commit.
func BenchmarkPublish(b *testing.B) {
	for _, publishers := range []int{1, 64, 512} {
		b.Run(fmt.Sprint("publishers=", publishers), func(b *testing.B) {
			store, err := bolt.Open(filepath.Join(b.TempDir(), "publish.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			service, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
			if err != nil {
				b.Fatal(err)
			}
			webhook, err := service.Create(b.Context(), "acct_1", webhooks.CreateParams{
				URL: "https://example.com/hooks", Events: []driver.EventType{alerts.TypeBalanceLow},
			})
			if err != nil {
				b.Fatal(err)
			}
			publish := func() error {
				return service.Publish(b.Context(), webhooks.Event{
					Account: "acct_1", Data: alerts.BalanceLow{Balance: 1_500_000_000, Threshold: 2_000_000_000},
				})
			}
			floor := newFloor(b, len(webhook.ID))

			each := max(publishers*50, 200) // events per round
			var ours, theirs []time.Duration
			var oursTotal, theirsTotal time.Duration
			for b.Loop() {
				waits, total := race(b, publishers, each, floor.commit)
				theirs, theirsTotal = append(theirs, waits...), theirsTotal+total
				waits, total = race(b, publishers, each, publish)
				ours, oursTotal = append(ours, waits...), oursTotal+total
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(ours))/oursTotal.Seconds(), "events/s")
			b.ReportMetric(theirsTotal.Seconds()/oursTotal.Seconds(), "of-floor")
			b.ReportMetric(float64(ours[len(ours)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(ours[len(ours)/2])/float64(theirs[len(theirs)/2]), "x/floor-p50")
		})
	}
}

// race calls do count times in total from several goroutines. It returns the duration of each call
// and of all calls together.
func race(b *testing.B, goroutines, count int, do func() error) (waits []time.Duration, total time.Duration) {
	all := make([][]time.Duration, goroutines)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range all {
		wg.Go(func() {
			for range count / goroutines {
				begun := time.Now()
				if err := do(); err != nil {
					b.Error(err)
				}
				all[i] = append(all[i], time.Since(begun))
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...), time.Since(start)
}

// A floor is a bare group-commit loop.
type floor struct {
	requests chan chan error
	seq      uint64
	rows     []row
}

// A row describes a row that is written to a bucket, either for each event or once per drain.
type row struct {
	bucket string
	each   bool
	key    int // size in bytes; keys begin with a sequence number
	value  int // size in bytes; per event if written once per drain
}

func newFloor(b *testing.B, webhookID int) *floor {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "floor.db"), 0o600, &bbolt.Options{NoStatistics: true})
	if err != nil {
		b.Fatal(err)
	}
	const eventID, account, body = 30, 6, 149
	f := &floor{requests: make(chan chan error, 1024), rows: []row{
		{"events", false, 8, 4 + 8 + 1 + webhookID + 4 + 1 + 12 + 7 + 12 + 1 + eventID + 1 + account},
		{"bodies", false, 8, 4 + body},
		{"fresh", false, 8, 1},
		{"event_ids", true, 1 + eventID + account, 8},
	}}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, r := range f.rows {
			if _, err := tx.CreateBucket([]byte(r.bucket)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.loop(db)
	}()
	b.Cleanup(func() {
		close(f.requests)
		<-ended
		_ = db.Close()
	})
	return f
}

func (f *floor) commit() error {
	done := make(chan error, 1)
	f.requests <- done
	return <-done
}

func (f *floor) loop(db *bbolt.DB) {
	for first := range f.requests {
		batch := []chan error{first}
		for more := true; more; {
			select {
			case next, ok := <-f.requests:
				if more = ok; ok {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		err := db.Update(func(tx *bbolt.Tx) error {
			for range batch {
				f.seq++
				if err := f.put(tx, true, 1); err != nil {
					return err
				}
			}
			return f.put(tx, false, len(batch))
		})
		for _, done := range batch {
			done <- err
		}
	}
}

// put writes rows: if each is true, the rows for one event; otherwise the rows for a whole drain
// with the given number of events.
func (f *floor) put(tx *bbolt.Tx, each bool, events int) error {
	for _, r := range f.rows {
		if r.each != each {
			continue
		}
		key := make([]byte, r.key)
		binary.BigEndian.PutUint64(key, f.seq)
		bucket := tx.Bucket([]byte(r.bucket))
		bucket.FillPercent = 0.95
		if err := bucket.Put(key, make([]byte, events*r.value)); err != nil {
			return err
		}
	}
	return nil
}
