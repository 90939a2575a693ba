package eventlog

import (
	"math"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// A Sweep searches the pending deliveries for deliveries to certain webhooks. The zero Sweep is
// done.
type Sweep struct {
	Webhooks map[string]bool // empty if the Sweep is done

	bucket int // AsPublished or Attempted
	left   Range
}

// NewSweep returns a Sweep for the webhooks with these IDs.
func NewSweep(webhooks map[string]bool) Sweep {
	return Sweep{webhooks, AsPublished, Range{Last: math.MaxUint64}}
}

// IsDone reports whether the Sweep has searched all pending deliveries.
func (s Sweep) IsDone() bool { return len(s.Webhooks) == 0 }

// Find returns the next deliveries to the webhooks of s, and the Sweep that continues after them.
// It stops at the end of a bucket, or when isFull returns true for the number of deliveries found.
func (s Sweep) Find(v *View, isFull func(found int) bool) (found []driver.DeliveryRef, next Sweep) {
	r := PendingReader{View: v, Now: time.Now()}
	r.Full = func() bool { return isFull(len(found)) }
	r.Visit = func(webhook []byte, d driver.PendingDelivery) {
		if s.Webhooks[string(webhook)] {
			found = append(found, driver.DeliveryRef{WebhookID: string(webhook), Number: d.Number})
		}
	}
	next = s
	next.left = r.Read(s.bucket, s.left)
	switch {
	case !next.left.IsEmpty():
		return found, next
	case s.bucket == AsPublished:
		next.bucket, next.left = Attempted, Range{Last: math.MaxUint64}
		return found, next
	}
	return found, Sweep{}
}
