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

	"github.com/storageapi/storageapi/webhooks"
)

// The kinds that a Summary counts apart from records: what events hold. Their checksums
// are those of their events.
const (
	CountPending  Kind = "event/pending"  // deliveries
	CountSettled  Kind = "event/settled"  // deliveries, and skipped ones
	CountAttempts Kind = "event/attempts" // that are kept
	CountBodies   Kind = "event/bodies"   // that are not purged
)

// A Summary says what there is, by kind. Stores that have the same records have equal
// summaries, in whatever order the records come and under whichever keys secrets are
// sealed. How long deliveries wait, which were redelivered last, and how far a recovery is,
// is not in it.
type Summary map[Kind]Sum

// A Sum counts records.
type Sum struct {
	Count    int
	Checksum [sha256.Size]byte // zero for the Count kinds
}

// Add counts a record.
func (s Summary) Add(r Record) error {
	event, isEvent := r.(*Event)
	if isEvent {
		lasting := *event
		lasting.Deliveries = slices.Clone(event.Deliveries)
		for i := range lasting.Deliveries {
			d := &lasting.Deliveries[i]
			d.First, d.AsPublished, d.Wait = false, false, 0
			s.count(CountAttempts, len(d.Attempts))
			if d.State == webhooks.Pending {
				s.count(CountPending, 1)
			} else {
				s.count(CountSettled, 1)
			}
		}
		if !event.NoBody {
			s.count(CountBodies, 1)
		}
		r = &lasting
	}
	if recovery, is := r.(*Recovery); is {
		lasting := *recovery
		lasting.NextEventID = ""
		r = &lasting
	}
	payload, err := encode(r)
	if err != nil {
		return err
	}
	sum := s[r.Kind()]
	sum.Count++
	sum.Checksum = plus(sum.Checksum, sha256.Sum256(payload))
	s[r.Kind()] = sum
	return nil
}

func (s Summary) count(kind Kind, n int) {
	if n > 0 {
		sum := s[kind]
		sum.Count += n
		s[kind] = sum
	}
}

// plus adds two numbers of 256 bits, so that the order of what is added does not matter.
func plus(a, b [sha256.Size]byte) (sum [sha256.Size]byte) {
	carry := uint64(0)
	for i := len(a) - 8; i >= 0; i -= 8 {
		var n uint64
		n, carry = bits.Add64(binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:]), carry)
		binary.BigEndian.PutUint64(sum[i:], n)
	}
	return sum
}

// Compare returns nil if both summaries are equal, or an error that wraps [ErrDiffer] and
// names the kinds that differ and how many of them each has.
func (s Summary) Compare(other Summary) error {
	kinds := maps.Clone(s)
	maps.Copy(kinds, other)
	var differ []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		switch a, b := s[kind], other[kind]; {
		case a.Count != b.Count:
			differ = append(differ, fmt.Sprintf("%s: %d and %d", kind, a.Count, b.Count))
		case a != b:
			differ = append(differ, fmt.Sprintf("%s: %d each, with other checksums", kind, a.Count))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDiffer, strings.Join(differ, "; "))
}

// Summarize exports all that the store has of the account, or of all accounts and of
// itself if account is empty, and returns what that is. The error wraps [ErrUnreadable] if
// something cannot be read.
func Summarize(ctx context.Context, s Store, account string) (Summary, error) {
	return summarize(ctx, s, account, 1000, time.Time{}, func(Page) {})
}
