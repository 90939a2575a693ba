package queue_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// disk is what a backend keeps, by the number of each delivery. It stands for a file.
type disk map[uint64]string

var errFull = errors.New("the disk is full")

// A backend is the part of a store that gives deliveries out, in small: it writes first,
// and tells the queue then.
type backend struct {
	disk  disk
	full  bool
	queue queue.Queue
}

// open adds what the disk says is pending.
func open(d disk) *backend {
	b := &backend{disk: d}
	for number := range d {
		b.queue.Add(queue.Pending{Webhook: "wh_1", Account: "acct_1", Seq: number, Due: time.Now()})
	}
	return b
}

func (b *backend) enqueue(number uint64, event string) {
	b.disk[number] = event
	b.queue.Add(queue.Pending{Webhook: "wh_1", Account: "acct_1", Seq: number, Due: time.Now()})
}

func (b *backend) claim(claim webhooks.Claim) (tokens []uint64) {
	claimed, _ := b.queue.Claim(time.Now(), claim)
	for _, c := range claimed {
		fmt.Printf("attempt %d of %s to %s\n", c.Attempt, b.disk[c.Seq], c.Webhook)
		tokens = append(tokens, c.Token)
	}
	return tokens
}

// settle records that a delivery arrived. While it is being recorded its lease does not
// run out; if that fails the lease goes on.
func (b *backend) settle(token uint64) error {
	_, number, current := b.queue.Hold(token)
	switch {
	case !current:
		return errors.New("stale")
	case b.full:
		b.queue.Unhold(token)
		return errFull
	}
	delete(b.disk, number)
	b.queue.Done(token)
	return nil
}

// An embedded backend keeps deliveries, and has the queue say which are next.
func Example() {
	b := open(disk{})
	b.enqueue(1, "evt_1")
	b.enqueue(2, "evt_2")

	one := webhooks.Claim{Limit: 9, Lease: time.Minute, Cap: func(string, bool) int { return 1 }}
	token := b.claim(one)[0]
	b.full = true
	fmt.Println(b.settle(token))
	b.full = false
	fmt.Println(b.settle(token), b.settle(token))

	b.claim(one)        // and the process is killed:
	b = open(b.disk)    // its leases are gone,
	_ = b.claim(one)[0] // and what was not settled is claimed again
	// Output:
	// attempt 1 of evt_1 to wh_1
	// the disk is full
	// <nil> stale
	// attempt 1 of evt_2 to wh_1
	// attempt 1 of evt_2 to wh_1
}
