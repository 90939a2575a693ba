package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// resealStep is how many webhooks are sealed again in a transaction.
const resealStep = 1000

// reseal seals all secrets under the first key, or unseals them if there are no keys.
func (s *Store) reseal() error {
	var mark []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		mark = bytes.Clone(tx.Bucket(bucketMeta).Get(keySeal))
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.keys.Open(mark, string(keySeal)); err != nil {
		return fmt.Errorf("signing secrets: %w", err)
	}
	if s.keys.Current(mark) && (s.keys == nil || len(mark) > 0) {
		return nil
	}
	for next := []byte{}; next != nil; {
		err := s.writer.Run(context.Background(), func(b *batch) (err error) {
			next, err = s.resealFrom(b, next)
			return err
		})
		if err != nil {
			return fmt.Errorf("seal the signing secrets: %w", err)
		}
	}
	return nil
}

// resealFrom seals the secrets of a batch of webhooks from row on, and returns the row to continue
// with; at the end it marks the file as sealed. Open calls it, before any webhook is cached.
func (s *Store) resealFrom(b *batch, row []byte) (next []byte, err error) {
	var records [][2][]byte // key and value; written after the loop, which needs the cursor
	c := b.tx.Bucket(bucketWebhooks).Cursor()
	k, value := c.Seek(row)
	for ; k != nil && len(records) < resealStep; k, value = c.Next() {
		account, id := record.CutPrefixed(k)
		webhook, err := record.DecodeWebhook(account, id, value, s.keys)
		if err != nil {
			continue // unreadable with these keys, and stays so
		}
		sealed := append(record.EncodeWebhook(&webhook, s.keys), record.WebhookFields(value)...)
		records = append(records, [2][]byte{bytes.Clone(k), sealed})
	}
	next = bytes.Clone(k)
	for _, r := range records {
		if err := b.Put(bucketWebhooks, r[0], r[1]); err != nil {
			return nil, err
		}
	}
	if next == nil {
		return nil, b.Put(bucketMeta, keySeal, s.keys.Seal(signing.NewSecret(), string(keySeal)))
	}
	return next, nil
}
