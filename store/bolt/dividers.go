package bolt

import "github.com/storageapi/storageapi/store/bolt/internal/record"

// Dividers are rows without values after the last segment of bucketEvents. They make a commit write what it publishes
// once.
//
// When rows are added bbolt writes all of their leaf again, and divides it only if it has more than four, with at least two
// on either side. So the last leaf would keep the two latest segments with their bodies, of up to 45 KB each, and each of them would be
// written by two or three commits. With dividers after them the last leaf is one page of these. The next commit that stores more than a page
// moves them after its own segments.
const (
	firstDivider = 'c' // after the 'b' of bodies
	lastDivider  = 'e'
)

func dividerKey(number uint64, divider byte) []byte { return append(record.NumberKey(number), divider) }

// isDivider reports whether the row of bucketEvents is a divider.
func isDivider(k, value []byte) bool {
	return len(k) == 9 && firstDivider <= k[8] && k[8] <= lastDivider && len(value) == 0
}

// moveDividers moves the dividers after the last segment, if much was written since.
func (b *batch) moveDividers() error {
	if b.published < b.store.spare.pageSize {
		return nil
	}
	b.published = 0
	if b.divided == 0 {
		b.divided = b.store.divided
	}
	last := b.tx.Bucket(bucketEvents).Sequence()
	for divider := byte(firstDivider); divider <= lastDivider; divider++ {
		if err := b.Delete(bucketEvents, dividerKey(b.divided, divider)); err != nil {
			return err
		}
		if err := b.Append(bucketEvents, dividerKey(last, divider), nil); err != nil {
			return err
		}
	}
	b.divided = last
	b.AfterCommit(func() { b.store.divided = last })
	return nil
}
