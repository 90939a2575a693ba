package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// upgrades lead from oldestSchema to schemaVersion, one schema each. They stay for ever, so
// none of them uses what describes the newest layout, such as the encoders of records,
// unless it did not change since.
var upgrades = [schemaVersion - oldestSchema]upgrade{
	changeRows(bucketWebhooks, upgradeRows, record.UpgradeWebhook), // to 6: records of webhooks have room for fields
	inOrder( // to 7: keys are found by when they expire, and webhooks that are off
		indexRows(bucketKeys, bucketExpiry, indexedRows, expiryOf),
		indexRows(bucketWebhooks, bucketOff, indexedRows, offOf),
	),
	logNotices(upgradeRows), // to 8: notices are in one log, in which those of a target are linked
}

// An upgrade does a part of what leads to the next schema, in a transaction: from the row on
// that the part before returned, or the first, which is empty. It returns the row to go on
// with, or nil when the file is complete. The transactions of an upgrade are bounded by
// upgradeRows and upgradeBytes, for bbolt has in memory what one of them changes.
type upgrade func(tx *bbolt.Tx, from []byte) (next []byte, err error)

const (
	upgradeRows  = 16 << 10
	upgradeBytes = 4 << 20
	indexedRows  = 128 << 10 // of an index, see indexRows: some 30 MB
)

// An upgrader brings a file to the newest schema.
//
// The first transaction of an upgrade sets the schema that it leads to, so that no older
// version uses the file from then on, and each but the last leaves the row to go on with.
type upgrader struct {
	steps  []upgrade // from oldestSchema
	noCopy bool
}

// newest returns the schema that the steps lead to.
func (u *upgrader) newest() uint64 { return oldestSchema + uint64(len(u.steps)) }

// run upgrades the file, if it is of an older schema or an upgrade of it was cut short.
func (u *upgrader) run(db *bbolt.DB) error {
	var version uint64
	var underWay bool
	err := db.View(func(tx *bbolt.Tx) error {
		version, underWay = schemaOf(tx), tx.Bucket(bucketMeta).Get(keyUpgrade) != nil
		return nil
	})
	if err != nil || version == u.newest() && !underWay {
		return err
	}
	if !underWay && !u.noCopy {
		if err := keepCopy(db, version); err != nil {
			return fmt.Errorf("keep a copy of the file before it is upgraded to schema %d: %w; make room for it, or decline it with NoUpgradeCopy", u.newest(), err)
		}
	}
	for version < u.newest() || underWay {
		err := db.Update(func(tx *bbolt.Tx) (err error) {
			version, underWay, err = u.step(tx)
			return err
		})
		if err != nil {
			return fmt.Errorf("upgrade the file to schema %d: %w", u.newest(), err)
		}
	}
	return nil
}

// step goes on with the upgrade, or begins the next one.
func (u *upgrader) step(tx *bbolt.Tx) (version uint64, underWay bool, err error) {
	meta := tx.Bucket(bucketMeta)
	version = schemaOf(tx)
	from := bytes.Clone(meta.Get(keyUpgrade))
	if from == nil {
		version++
		if err := meta.Put(keySchema, binary.BigEndian.AppendUint64(nil, version)); err != nil {
			return 0, false, err
		}
	}
	if version <= oldestSchema {
		return 0, false, errDamaged("it is being upgraded to a schema that is not upgraded to")
	}
	next, err := u.steps[version-oldestSchema-1](tx, from)
	switch {
	case err != nil:
		return 0, false, err
	case next == nil:
		return version, false, meta.Delete(keyUpgrade)
	}
	return version, true, meta.Put(keyUpgrade, next)
}

// schemaOf returns the schema of a file that checkSchema has accepted.
func schemaOf(tx *bbolt.Tx) uint64 {
	return binary.BigEndian.Uint64(tx.Bucket(bucketMeta).Get(keySchema))
}

// changeRows returns an upgrade that changes the values of a bucket, at most limit of them in a
// transaction. Those that cannot be
// read stay as they are.
func changeRows(bucket []byte, limit int, change func(value []byte) ([]byte, error)) upgrade {
	return func(tx *bbolt.Tx, from []byte) (next []byte, err error) {
		rows := tx.Bucket(bucket)
		var changed [][2][]byte // not written at once, for the cursor's sake
		c := rows.Cursor()
		k, value := c.Seek(from)
		for n, size := 0, 0; k != nil && n < limit && size < upgradeBytes; n++ {
			if to, err := change(value); err == nil {
				changed = append(changed, [2][]byte{bytes.Clone(k), to})
			}
			size += len(k) + len(value)
			k, value = c.Next()
		}
		next = bytes.Clone(k)
		for _, row := range changed {
			if err := rows.Put(row[0], row[1]); err != nil {
				return nil, err
			}
		}
		return next, nil
	}
}

// A rowOf returns the row of an index for one of a bucket, whose key it appends to buffer; a
// nil key for none.
type rowOf func(buffer, key, value []byte) (indexKey, indexed []byte)

// indexRows returns an upgrade that fills an index of a bucket, which it makes if it is not
// there. The index is in another order than the bucket, and rows in the order of their keys
// take much less writing: so each transaction goes through all of the bucket, for at most
// limit rows that come first after those that are there.
func indexRows(bucket, index []byte, limit int, row rowOf) upgrade {
	return func(tx *bbolt.Tx, from []byte) (next []byte, err error) {
		to, err := tx.CreateBucketIfNotExists(index)
		if err != nil {
			return nil, err
		}
		rows, more := firstRows(tx.Bucket(bucket), from, limit, row)
		to.FillPercent = 0.9
		for _, row := range rows {
			if err := to.Put(row[0], row[1]); err != nil {
				return nil, err
			}
		}
		if !more {
			return nil, nil
		}
		return rows[len(rows)-1][0], nil
	}
}

// firstRows returns the first rows of an index of a bucket that come after one, in their order,
// and whether there are more.
func firstRows(bucket *bbolt.Bucket, after []byte, limit int, row rowOf) (rows [][2][]byte, more bool) {
	cut := func() {
		slices.SortFunc(rows, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
		if len(rows) > limit {
			rows, more = rows[:limit], true
		}
	}
	buffer := make([]byte, 0, 512)
	c := bucket.Cursor()
	for k, value := c.First(); k != nil; k, value = c.Next() {
		key, indexed := row(buffer, k, value)
		if key == nil || bytes.Compare(key, after) <= 0 || more && bytes.Compare(key, rows[limit-1][0]) > 0 {
			continue
		}
		if rows = append(rows, [2][]byte{bytes.Clone(key), bytes.Clone(indexed)}); len(rows) == 2*limit {
			cut()
		}
	}
	cut()
	return rows, more
}

// inOrder returns an upgrade of several parts, one after the other. The row to go on with is
// preceded by the number of the part.
func inOrder(parts ...upgrade) upgrade {
	return func(tx *bbolt.Tx, from []byte) (next []byte, err error) {
		part := 0
		if len(from) > 0 {
			part, from = int(from[0]), from[1:]
		}
		if part >= len(parts) {
			return nil, errDamaged("it is being upgraded by more than there is")
		}
		next, err = parts[part](tx, from)
		if err == nil && next == nil && part+1 < len(parts) {
			part, next = part+1, []byte{}
		}
		if err != nil || next == nil {
			return nil, err
		}
		return append([]byte{byte(part)}, next...), nil
	}
}

// copyPath returns where the copy of a file of that schema is kept.
func copyPath(db *bbolt.DB, version uint64) string {
	return fmt.Sprintf("%s.schema-%d", db.Path(), version)
}

// keepCopy copies the file, which is locked, to what copyPath returns. The copy appears when it is
// complete and on the disk; a crash leaves a part of one, of another name, which the next
// copy replaces.
func keepCopy(db *bbolt.DB, version uint64) error {
	path := copyPath(db, version)
	temporary := path + ".part"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(file)
		return err
	})
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
		return err
	}
	syncDir(filepath.Dir(path))
	return nil
}
