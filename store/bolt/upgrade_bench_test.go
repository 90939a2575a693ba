package bolt

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkUpgrade measures Open where it upgrades a file of 1 M keys and 1 M events, of
// 300 bytes, so that the record of each key and each segment is written again, with the copy
// that it keeps: "copies" is that against copying the file once with a sync. It says also what
// Open takes of the same file afterwards, and the most that the upgrade had on the heap
// beyond what was there before, "peak-MB".
func BenchmarkUpgrade(b *testing.B) {
	count := 1_000_000
	if testing.Short() {
		count = 10_000
	}
	path := filepath.Join(b.TempDir(), "storage.db")
	fillOld(b, path, count)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	var peak, before uint64
	sample := func(values int) func(value []byte) ([]byte, error) {
		n := 0
		return func(value []byte) ([]byte, error) {
			if n++; n%values == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
			if _, alias := record.DecodeAlias(value); alias {
				return value, nil
			}
			return bytes.Clone(value), nil
		}
	}
	var copying, upgrading, opening time.Duration
	for b.Loop() {
		b.StopTimer()
		copied := filepath.Join(filepath.Dir(path), "copy.db")
		start := time.Now()
		if err := copySynced(path, copied); err != nil {
			b.Fatal(err)
		}
		copying += time.Since(start)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before = m.HeapInuse
		b.StartTimer()
		for _, took := range []*time.Duration{&upgrading, &opening} {
			start := time.Now()
			s, err := Open(copied, WithUpgrade("keys", upgradeRows, sample(1000)), WithUpgrade("events", upgradeRows, sample(100)))
			if err != nil {
				b.Fatal(err)
			}
			*took += time.Since(start)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(upgrading.Seconds()/copying.Seconds(), "copies")
	b.ReportMetric(upgrading.Seconds()/float64(b.N), "upgrade-s")
	b.ReportMetric(opening.Seconds()/float64(b.N), "open-s")
	b.ReportMetric(float64(info.Size())/1e6, "file-MB")
	b.ReportMetric(float64(peak-min(peak, before))/1e6, "peak-MB")
}

func copySynced(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	copied, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, source)
	return errors.Join(err, copied.Sync(), copied.Close())
}

// fillOld writes a file of so many keys and events.
func fillOld(b *testing.B, path string, count int) {
	b.Helper()
	s, err := Open(path)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	const each = 10_000
	for first := 0; first < count; first += each {
		err = db.Update(func(tx *bbolt.Tx) error { return putOld(tx, first, each) })
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

// putOld writes as many keys from a number on, in the order of their hashes, since it is quicker,
// and as many events, in segments of a hundred.
func putOld(tx *bbolt.Tx, first, count int) error {
	now := time.Now()
	keys, ids, events := tx.Bucket(bucketKeys), tx.Bucket(bucketKeyIDs), tx.Bucket(bucketEvents)
	for i := first; i < first+count; i++ {
		key := apikeys.Key{ID: fmt.Sprintf("key_%026d", i), Account: fmt.Sprint("acct_", i/1000), Name: "benchmark", Scopes: scopes.All(), CreatedAt: now}
		_, _ = rand.Read(key.Hash.Sum[:])
		copy(key.Hash.Sum[:], record.NumberKey(uint64(i)))
		if err := keys.Put(key.Hash.Sum[:], record.EncodeKey(&key)); err != nil {
			return err
		}
		if err := ids.Put(record.Prefixed(key.Account, key.ID), key.Hash.Sum[:]); err != nil {
			return err
		}
	}
	var segment record.SegmentBuilder
	body := bytes.Repeat([]byte("x"), 300)
	for i := 0; i < count; i += 100 {
		segment.Begin(events.Sequence() + 1)
		for n := range 100 {
			event := webhooks.EncodedEvent{ID: fmt.Sprintf("evt_%026d", first+i+n), Account: "acct_1", Type: webhooks.TypeBalanceLow, Timestamp: now}
			encoded := record.AppendEvent(nil, &event)
			record.SetPublished(encoded, now, 0)
			segment.AppendEvent(encoded, body, nil, nil)
		}
		last := segment.Last()
		records, bodies := segment.Records()
		if err := events.Put(record.NumberKey(last), bytes.Clone(records)); err != nil {
			return err
		}
		if err := events.Put(bodiesKey(record.NumberKey(last)), bytes.Clone(bodies)); err != nil {
			return err
		}
		if err := events.SetSequence(last); err != nil {
			return err
		}
		segment.Reset()
	}
	return nil
}
