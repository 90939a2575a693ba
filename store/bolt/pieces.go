package bolt

import (
	"bytes"
	"encoding/binary"
	"iter"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// Events are in the order in which they were published, except where an account was imported
// next to others, whose events come after newer ones, and where the clock was set back by more than a day. The numbers of the events with which
// such a piece begins are in a row of bucketMeta, 8 bytes each, ascending. Other files are one piece.

// pieces returns the first number of each piece and the one after its last; none if there is
// no event.
func pieces(tx *bbolt.Tx) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		low, last := bounds(tx)
		begins := tx.Bucket(bucketMeta).Get(keyPieces)
		for ; len(begins) >= 8; begins = begins[8:] {
			if begin := binary.BigEndian.Uint64(begins); begin > low && begin < last {
				if !yield(low, begin) {
					return
				}
				low = begin
			}
		}
		if low < last {
			yield(low, last)
		}
	}
}

// beginPiece notes that a piece begins with the event of that number, and forgets those that
// begin before the first event.
func (b *batch) beginPiece(number uint64) error {
	first, _ := bounds(b.tx)
	begins := bytes.Clone(b.Get(bucketMeta, keyPieces))
	for len(begins) >= 8 && binary.BigEndian.Uint64(begins) <= first {
		begins = begins[8:]
	}
	return b.Put(bucketMeta, keyPieces, append(begins, record.NumberKey(number)...))
}
