package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/store/driver"
)

// The kinds that count parts of events. These parts are not separate records, so the checksums of
// events cover them.
const (
	CountPending  Kind = "event/pending"  // pending deliveries
	CountSettled  Kind = "event/settled"  // settled and skipped deliveries
	CountAttempts Kind = "event/attempts" // stored attempts
	CountBodies   Kind = "event/bodies"   // stored bodies
)

// A Summary counts a store's records by kind. Stores with the same records have equal summaries,
// regardless of the order of the records and of the keys that seal their secrets. A summary does
// not cover when deliveries are due, whether they go before others, and from where a recovery
// continues.
type Summary map[Kind]Sum

// A Sum is the number of records of one kind and a checksum over all of them.
type Sum struct {
	Count    int
	Checksum [sha256.Size]byte // zero for the Count kinds
}

// Add adds a record.
func (s Summary) Add(r Record) {
	if event, is := r.(*Event); is {
		for i := range event.Deliveries {
			d := &event.Deliveries[i]
			s.count(CountAttempts, len(d.Attempts))
			if d.State == driver.Pending {
				s.count(CountPending, 1)
			} else {
				s.count(CountSettled, 1)
			}
		}
		if !event.NoBody {
			s.count(CountBodies, 1)
		}
	}
	sum := s[r.Kind()]
	sum.Count++
	sum.Checksum = plus(sum.Checksum, fields.Sum(fielded{r}, 0))
	s[r.Kind()] = sum
}

func (s Summary) count(kind Kind, n int) {
	if n > 0 {
		sum := s[kind]
		sum.Count += n
		s[kind] = sum
	}
}

// plus returns the sum of two 256-bit numbers. Adding the hashes of records makes a checksum that
// does not depend on their order.
func plus(a, b [sha256.Size]byte) (sum [sha256.Size]byte) {
	carry := uint64(0)
	for i := len(a) - 8; i >= 0; i -= 8 {
		var n uint64
		n, carry = bits.Add64(binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:]), carry)
		binary.BigEndian.PutUint64(sum[i:], n)
	}
	return sum
}

// Compare returns nil if both summaries are equal, or an error that wraps [ErrDiffer] and names the
// differing kinds with both counts.
func (s Summary) Compare(other Summary) error {
	kinds := maps.Clone(s)
	maps.Copy(kinds, other)
	var differ []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		switch a, b := s[kind], other[kind]; {
		case a.Count != b.Count:
			differ = append(differ, fmt.Sprintf("%s: %d and %d", kind, a.Count, b.Count))
		case a != b:
			differ = append(differ, fmt.Sprintf("%s: %d each, with different checksums", kind, a.Count))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDiffer, strings.Join(differ, "; "))
}

// Summarize returns the summary of all records of the account, or of all accounts and the store
// itself if account is empty. The error wraps [ErrUnreadable] if a record cannot be read.
func Summarize(ctx context.Context, s Store, account string) (Summary, error) {
	return summarize(ctx, s, account, 1000, time.Time{}, func(Page) {})
}
