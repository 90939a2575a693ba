package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// logNotices returns an upgrade that puts notices into a log, at most limit of them in a
// transaction. Before, they were under account and id, with an index by number. One that
// cannot be read is left out.
func logNotices(limit int) upgrade {
	return func(tx *bbolt.Tx, from []byte) (next []byte, err error) {
		rows, order := tx.Bucket([]byte("audit")), tx.Bucket([]byte("audit_order"))
		log, err := tx.CreateBucketIfNotExists([]byte("audit_log"))
		if err != nil {
			return nil, err
		}
		heads, err := tx.CreateBucketIfNotExists([]byte("audit_heads"))
		if err != nil || rows == nil || order == nil { // older versions of the file had none
			return nil, errors.Join(err, dropBuckets(tx, "audit", "audit_order"))
		}
		log.FillPercent = 0.95
		c := order.Cursor()
		k, value := c.Seek(from)
		for n, size := 0, 0; k != nil && n < limit && size < upgradeBytes; n++ {
			size += len(k) + len(value)
			storedAt, row, err := record.DecodeNoticeOrder(value)
			notice := rows.Get(row)
			if err == nil && notice != nil && len(k) == 8 {
				size += len(notice)
				if err := logNotice(log, heads, k, storedAt, row, notice); err != nil {
					return nil, err
				}
			}
			k, value = c.Next()
		}
		if k != nil {
			return bytes.Clone(k), nil
		}
		if err := log.SetSequence(order.Sequence()); err != nil {
			return nil, err
		}
		return nil, dropBuckets(tx, "audit", "audit_order")
	}
}

func logNotice(log, heads *bbolt.Bucket, number []byte, storedAt int64, row, notice []byte) error {
	account, id := record.CutPrefixed(row)
	n, _, err := record.DecodeNotice(account, id, notice)
	if err != nil {
		return nil
	}
	entry := record.NoticeEntry{StoredAt: storedAt, Account: account, ID: id, Notice: notice}
	for _, link := range []struct {
		head   []byte
		before *uint64
	}{{record.NoticesOf(account), &entry.Before}, {record.NoticesOfTarget(account, n.Target), &entry.BeforeOfTarget}} {
		last, greatest := record.DecodeNoticeHead(heads.Get(link.head))
		*link.before = last
		if err := heads.Put(link.head, record.EncodeNoticeHead(binary.BigEndian.Uint64(number), max(greatest, id))); err != nil {
			return err
		}
	}
	return log.Put(bytes.Clone(number), entry.Encode())
}

// dropBuckets removes buckets that are there.
func dropBuckets(tx *bbolt.Tx, names ...string) error {
	for _, name := range names {
		if err := tx.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
			return err
		}
	}
	return nil
}
