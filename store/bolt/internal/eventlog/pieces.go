package eventlog

import (
	"bytes"
	"encoding/binary"
	"iter"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Events are in the order in which they were published, except where an account was imported next
// to others, whose events come after newer ones, and where the clock was set back by more than a
// day. The numbers of the events with which such a piece begins are in a row of meta, 8 bytes each,
// ascending. Other files are one piece.

// pieces returns the first number of each piece and the one after its last; none if there is
// no event.
func pieces(tx *bbolt.Tx) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		low, last := bounds(tx)
		begins := tx.Bucket(schema.Meta).Get(schema.MetaPieces)
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

// beginPiece stores the number of the first event of a piece, and deletes the numbers of pieces
// that are purged.
func (s *Step) beginPiece(number uint64) error {
	first, _ := bounds(s.tx)
	begins := bytes.Clone(s.Get(schema.Meta, schema.MetaPieces))
	for len(begins) >= 8 && binary.BigEndian.Uint64(begins) <= first {
		begins = begins[8:]
	}
	return s.Put(schema.Meta, schema.MetaPieces, append(begins, record.NumberKey(number)...))
}
