package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"

	positions "github.com/storageapi/storageapi/internal/cursor"
)

// A cursor encrypts and decrypts list positions. In a webhook's list of deliveries it encrypts the
// counter in the event's number, which counts the events of all accounts within a microsecond. In
// lists of events and audit entries it encrypts the whole position, which may be another account's
// event, and it detects cursors of other stores.
type cursor struct {
	key             []byte
	events, entries positions.Key
}

// loadCursor reads the key that all nodes share.
func (s *Store) loadCursor(ctx context.Context) error {
	ctx, cancel := within(ctx, patience)
	defer cancel()
	err := s.pool.QueryRow(ctx, s.sql(`select seal from storageapi.marks where name = 'cursors'`)).Scan(&s.cursor.key)
	for list, key := range map[string]*positions.Key{"events": &s.cursor.events, "audit": &s.cursor.entries} {
		h := hmac.New(sha256.New, s.cursor.key)
		_, _ = h.Write([]byte(list))
		copy(key[:], h.Sum(nil))
	}
	return failure(ctx, err)
}

// listedAuditEntry returns the number of the audit entry of a cursor, or 0, after which there are
// no entries, if the cursor is of another store.
func (c *cursor) listedAuditEntry(text string) int64 {
	number, ok := c.entries.Decode(text)
	if !ok || number > math.MaxInt64 {
		return 0
	}
	return int64(number)
}

// list returns the cursor of an event in a list of events.
func (c *cursor) list(event int64) string { return c.events.Encode(uint64(event)) }

// listed returns the event of a cursor in a list of events, or false if the cursor is of another
// store.
func (c *cursor) listed(text string) (event int64, ok bool) {
	position, ok := c.events.Decode(text)
	return int64(position), ok && position <= math.MaxInt64
}

// text returns the cursor of an event in a webhook's list of deliveries.
func (c *cursor) text(webhook, event int64) string {
	return strconv.FormatInt(c.turn(webhook, event), 10)
}

// event returns the event of a cursor in a webhook's list of deliveries.
func (c *cursor) event(webhook int64, text string) (event int64, ok bool) {
	hidden, err := strconv.ParseInt(text, 10, 64)
	return c.turn(webhook, hidden), err == nil && hidden >= 0
}

// turn encrypts an event's number; applied again, it decrypts.
func (c *cursor) turn(webhook, event int64) int64 {
	h := hmac.New(sha256.New, c.key)
	_ = binary.Write(h, binary.BigEndian, [2]int64{webhook, event / perMicrosecond})
	return event ^ int64(binary.BigEndian.Uint64(h.Sum(nil))%perMicrosecond)
}
