package bolt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// ErrLeft is wrapped by the error of [Open] if the file was left for another store, which holds
// all later changes. The error names that store, and explains how to return.
var ErrLeft = errors.New("this file was left")

// A departure is the row in meta that records the store for which the file was left.
type departure struct {
	Place string `json:"place"`
	At    int64  `json:"at"` // Unix milliseconds
}

func (s *engine) Leave(ctx context.Context, place string) error {
	if place == "" {
		return s.writer.Run(ctx, func(b *batch) error { return b.Delete(schema.Meta, schema.MetaLeft) })
	}
	if len(place) > 4096 {
		return errors.New("leave: place must be at most 4096 bytes")
	}
	value, err := json.Marshal(departure{place, time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	return s.writer.Run(ctx, func(b *batch) error { return b.Put(schema.Meta, schema.MetaLeft, value) })
}

// checkLeft returns [ErrLeft] if the file was left.
func checkLeft(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(schema.Meta).Get(schema.MetaLeft)
		if value == nil {
			return nil
		}
		var d departure
		if err := json.Unmarshal(value, &d); err != nil {
			d.Place = "another store"
		}
		return fmt.Errorf("%w at %s UTC in favor of %s, which has newer data: open that instead, "+
			"or call bolt.Return to go back to this file without the newer data",
			ErrLeft, time.UnixMilli(d.At).UTC().Format(time.DateTime), d.Place)
	})
}

// Return makes a file that was left usable again, in the state in which it was left. The file lacks
// all changes made in the other store since then: keys revoked there work again, and events
// delivered from there are delivered again. So the other store must not be used from now on. Return
// has no effect on a file that was not left. The error names the file. It wraps [ErrLocked] if the
// file is open, and [ErrSchema] if the file has another schema or was made by another program.
func Return(path string) (err error) {
	defer debug.SetPanicOnFault(catchFaults())
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("return to %s: %w", path, pagefile.Damaged(p))
		}
	}()
	until := time.Now().Add(pagefile.DefaultWait)
	_, err = os.Stat(path) // bbolt would create a missing file
	if err == nil {
		err = pagefile.Precheck(path, until, string(schema.Spare))
	}
	if err != nil {
		return fmt.Errorf("return to %s: %w", path, err)
	}
	db, _, err := pagefile.Open(path, until, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return fmt.Errorf("return to %s: %w", path, err)
	}
	defer func() {
		if err = errors.Join(err, db.Close()); err != nil {
			err = fmt.Errorf("return to %s: %w", path, err)
		}
	}()
	return db.Update(func(tx *bbolt.Tx) error {
		if err := schema.Check(tx); err != nil {
			return err
		}
		return tx.Bucket(schema.Meta).Delete(schema.MetaLeft)
	})
}
