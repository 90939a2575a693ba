package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// resealStep is the number of webhooks sealed per transaction.
const resealStep = 1000

// openDataKey opens the file's data key, or adds one if the file has none and there is a Sealer.
// It calls the Sealer outside transactions.
func (s *engine) openDataKey() error {
	var sealed, mark []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(schema.Meta)
		sealed, mark = bytes.Clone(meta.Get(schema.MetaDataKey)), bytes.Clone(meta.Get(schema.MetaSealed))
		return nil
	})
	switch {
	case err != nil:
		return err
	case sealed == nil && mark != nil:
		return fmt.Errorf("no data key: %w", signing.ErrDamaged)
	case sealed == nil && s.options.Sealer == nil:
		return nil
	}
	ctx := context.Background()
	stale := sealed == nil
	if stale {
		s.dataKey = signing.NewDataKey()
	} else if s.dataKey, stale, err = signing.OpenDataKey(ctx, s.options.Sealer, sealed); err != nil {
		return err
	}
	if !stale {
		return nil
	}
	if sealed, err = s.dataKey.SealedBy(ctx, s.options.Sealer); err != nil {
		return err
	}
	return s.writer.Run(ctx, func(b *batch) error { return b.Put(schema.Meta, schema.MetaDataKey, sealed) })
}

// reseal seals all secrets that are in plain text, if there is a data key. When all secrets are
// sealed, it marks the file. If the file already has the mark, reseal only checks that the data key
// opens it.
func (s *engine) reseal() error {
	if s.dataKey == nil {
		return nil
	}
	var mark []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		mark = bytes.Clone(tx.Bucket(schema.Meta).Get(schema.MetaSealed))
		return nil
	})
	if err != nil {
		return err
	}
	if len(mark) > 0 {
		if _, err := s.dataKey.Open(mark, string(schema.MetaSealed)); err != nil {
			return fmt.Errorf("signing secrets: %w", err)
		}
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

// resealFrom seals the secrets of up to resealStep webhooks from row on, and returns the row to
// continue with. At the end it marks the file as sealed. It must run before any webhook is cached:
// Open calls it.
func (s *engine) resealFrom(b *batch, row []byte) (next []byte, err error) {
	var records [][2][]byte // keys and values to write after the loop, which needs the cursor
	c := b.tx.Bucket(schema.Webhooks).Cursor()
	k, value := c.Seek(row)
	for ; k != nil && len(records) < resealStep; k, value = c.Next() {
		account, id := record.CutPrefixed(k)
		webhook, err := s.decodeWebhook(account, id, value)
		if err != nil {
			continue // an unreadable webhook stays as it is
		}
		sealed := append(record.EncodeWebhook(&webhook, s.dataKey), record.WebhookFields(value)...)
		records = append(records, [2][]byte{bytes.Clone(k), sealed})
	}
	next = bytes.Clone(k)
	for _, r := range records {
		if err := b.Put(schema.Webhooks, r[0], r[1]); err != nil {
			return nil, err
		}
	}
	if next == nil {
		return nil, b.Put(schema.Meta, schema.MetaSealed, s.dataKey.Seal(signing.NewSecret(), string(schema.MetaSealed)))
	}
	return next, nil
}
