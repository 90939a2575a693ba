package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// A cursor encodes the position in a webhook's list of deliveries. The part of an event's
// number that counts the events of all accounts in a microsecond is encrypted.
type cursor struct{ key []byte }

// loadCursor reads the key of all nodes.
func (s *Store) loadCursor(ctx context.Context) error {
	ctx, cancel := within(ctx, patience)
	defer cancel()
	err := s.pool.QueryRow(ctx, s.sql(`select seal from storageapi.marks where name = 'cursors'`)).Scan(&s.cursor.key)
	return failure(ctx, err)
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
