package eventlog

import (
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Dividers are rows without values after the last segment of schema.Events. Thanks to them a commit
// writes each event once.
//
// When rows are added bbolt writes all of their leaf again, and divides it only if it has more than
// four, with at least two on either side. So the last leaf would keep the two latest segments with
// their bodies, of up to 45 KB each, and each of them would be written by two or three commits.
// With dividers after them the last leaf is one page of these. The next commit that stores more
// than a page moves them after its own segments.
const (
	firstDivider = 'c' // after the 'b' of bodies
	lastDivider  = 'e'
)

func dividerKey(number uint64, divider byte) []byte { return append(record.NumberKey(number), divider) }

// IsDivider reports whether the row of schema.Events is a divider.
func IsDivider(k, value []byte) bool {
	return len(k) == 9 && firstDivider <= k[8] && k[8] <= lastDivider && len(value) == 0
}

// moveDividers moves the dividers after the last segment, if much was written since.
func (s *Step) moveDividers() error {
	if s.published < s.writer.page {
		return nil
	}
	s.published = 0
	if s.divided == 0 {
		s.divided = s.writer.divided
	}
	last := s.tx.Bucket(schema.Events).Sequence()
	for divider := byte(firstDivider); divider <= lastDivider; divider++ {
		if err := s.Delete(schema.Events, dividerKey(s.divided, divider)); err != nil {
			return err
		}
		if err := s.Append(schema.Events, dividerKey(last, divider), nil); err != nil {
			return err
		}
	}
	s.divided = last
	s.AfterCommit(func() { s.writer.divided = last })
	return nil
}
