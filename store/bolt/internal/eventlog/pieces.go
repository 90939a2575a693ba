package eventlog

import (
	"bytes"
	"encoding/binary"
	"iter"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Events are in the order of publication, with two exceptions. The events of an imported account
// follow newer events of other accounts. After the clock was ahead by more than a day, new events
// follow events with later times. Each exception begins a new piece. A row of meta lists the number
// of each piece's first event, ascending, in 8 bytes each. A file without exceptions is one piece.

// pieces returns the first number of each piece and the number after its last. If there are no
// events, it returns no pieces.
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

// beginPiece stores the number of a new piece's first event, and deletes the numbers of pieces
// that have been purged.
func (s *Step) beginPiece(number uint64) error {
	first, _ := bounds(s.tx)
	begins := bytes.Clone(s.Get(schema.Meta, schema.MetaPieces))
	for len(begins) >= 8 && binary.BigEndian.Uint64(begins) <= first {
		begins = begins[8:]
	}
	return s.Put(schema.Meta, schema.MetaPieces, append(begins, record.NumberKey(number)...))
}
