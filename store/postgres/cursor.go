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

// A cursor encodes the position in a webhook's list of deliveries. The part of an event's
// number that counts the events of all accounts in a microsecond is encrypted. So is the whole
// position in a list of events, which may be that of another account's, and which tells whether
// it is of this store.
type cursor struct {
	key             []byte
	events, entries positions.Key
}

// loadCursor reads the key of all nodes.
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

// listedAuditEntry returns the number of the audit entry of a cursor in a list of audit entries; 0 if it is not of
// this store: then none is after it.
func (c *cursor) listedAuditEntry(text string) int64 {
	number, ok := c.entries.Decode(text)
	if !ok || number > math.MaxInt64 {
		return 0
	}
	return int64(number)
}

// list returns the cursor of an event in a list of events.
func (c *cursor) list(event int64) string { return c.events.Encode(uint64(event)) }

// listed returns the event of a cursor in a list of events; false if it is not of this store.
func (c *cursor) listed(text string) (event int64, ok bool) {
	position, ok := c.events.Decode(text)
	return int64(position), ok && position <= math.MaxInt64
}

// text returns the cursor of an event in the list of a webhook.
func (c *cursor) text(webhook, event int64) string {
	return strconv.FormatInt(c.turn(webhook, event), 10)
}

// event returns the event of a cursor.
func (c *cursor) event(webhook int64, text string) (event int64, ok bool) {
	hidden, err := strconv.ParseInt(text, 10, 64)
	return c.turn(webhook, hidden), err == nil && hidden >= 0
}

// turn encrypts, and decrypts what it encrypted.
func (c *cursor) turn(webhook, event int64) int64 {
	h := hmac.New(sha256.New, c.key)
	_ = binary.Write(h, binary.BigEndian, [2]int64{webhook, event / perMicrosecond})
	return event ^ int64(binary.BigEndian.Uint64(h.Sum(nil))%perMicrosecond)
}
