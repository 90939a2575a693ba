package eventlog

import (
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Dividers are rows without values after the last segment of schema.Events. Without them, each
// event would be written by two or three commits.
//
// When rows are added to a leaf, bbolt rewrites the leaf. It splits the leaf only if it has more
// than four rows, with at least two on either side. So without dividers, the last leaf would keep
// the two newest segments with their bodies, up to 45 KB each, and the next commits would write
// them again. With dividers, the last leaf is one page of dividers. The next commit that stores
// more than a page moves the dividers behind its own segments.
const (
	firstDivider = 'c' // after the 'b' of bodies
	lastDivider  = 'e'
)

func dividerKey(number uint64, divider byte) []byte { return append(record.NumberKey(number), divider) }

// IsDivider reports whether a row of schema.Events is a divider.
func IsDivider(k, value []byte) bool {
	return len(k) == 9 && firstDivider <= k[8] && k[8] <= lastDivider && len(value) == 0
}

// moveDividers moves the dividers behind the last segment, if the batch has written at least one
// page of events since it last moved them.
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
