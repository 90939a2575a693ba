package bolt

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

const (
	maxShorten  = 4 << 20 // bytes a step: what it writes holds up others
	looseFactor = 4       // pages of the list while a purge goes on
	looseMost   = 8       // the same, before which no extents smaller than looseSize are made while it does:
	looseSize   = 128     // what is free will be more in one place
)

// extentKey is the key of an extent's one value.
var extentKey = []byte{0}

// zeros are what extents hold. The largest has fewer pages than fit into a page of the list.
var zeros [4 << 20]byte

// shorten puts free pages among the spare ones if the list is too long: longer than one page,
// or than some while a purge goes on. It reports whether there may be more to do. That it failed
// is no error of the caller's: commits go on, with a longer list.
func (s *Store) shorten(ctx context.Context, purging bool) (more bool) {
	r := &s.spare
	limit := r.perPage() * 7 / 8
	if purging {
		limit *= looseFactor
	}
	if r.listed.Load() <= int64(limit) {
		return false
	}
	if r.skip.Add(-1) >= 0 {
		return false
	}
	var moved int
	move := func() error {
		return s.writer.RunAlone(ctx, func(b *batch) (err error) {
			moved, err = s.moveToSpare(b, purging)
			return err
		})
	}
	err := move()
	if err == nil && moved == 0 && !purging { // perhaps all was freed by the last commit: one more, and it can be used
		err = errors.Join(s.writer.RunAlone(ctx, func(b *batch) error { b.MarkWritten(); return nil }), move())
	}
	if errors.Is(err, bbolterrors.ErrMaxSizeReached) { // readers need some of the pages still
		r.skip.Store(1 << min(r.failures.Add(1), 4))
	} else {
		r.skip.Store(0)
		r.failures.Store(0)
	}
	return err == nil && moved > 0
}

// moveToSpare makes extents of free pages. Where there are fewer than it takes them for,
// the commit fails: the file must not grow by this.
func (s *Store) moveToSpare(b *batch, purging bool) (moved int, err error) {
	r := &s.spare
	b.refilled = true
	count, size, slack := r.plan(b.tx, purging)
	if count == 0 {
		return 0, nil
	}
	extents, err := b.tx.CreateBucketIfNotExists(bucketSpare)
	if err != nil {
		return 0, err
	}
	b.MarkWritten()
	extents.FillPercent = 0.95
	for range count {
		number, err := extents.NextSequence()
		if err != nil {
			return 0, err
		}
		extent, err := extents.CreateBucket(extentKeyOf(size, number))
		if err != nil {
			return 0, err
		}
		if err := extent.Put(extentKey, zeros[:size*r.pageSize-pageHeader-16-len(extentKey)]); err != nil {
			return 0, err
		}
	}
	s.db.AllocSize, s.db.MaxSize = 0, int(b.tx.Size())+slack*r.pageSize
	id := b.tx.ID()
	b.AfterCommit(func() {
		r.kept.Add(int64(count * size))
		if now, ok := r.list(id); ok {
			r.listed.Store(int64(now.count))
		}
	})
	return count * size, nil
}

// plan returns how many extents to make, of how many pages each; and how many pages the file
// may grow by for the list, if there is no place for it among those free. All are of one
// size: in which order bbolt places them then does not matter, there are as many places as there were.
func (r *spare) plan(tx *bbolt.Tx, purging bool) (count, size, slack int) {
	last, ok := r.list(tx.ID() - 1)
	before, known := r.list(tx.ID() - 2)
	if !ok || !known {
		return 0, 0, 0
	}
	r.listed.Store(int64(last.count))
	pages, err := r.pages(last)
	if err != nil {
		return 0, 0, 0
	}
	old, err := r.pages(before) // what was freed since may be needed by readers of the last commit
	if err != nil {
		return 0, 0, 0
	}
	runs := runsOf(pages, old)
	slack = last.count/r.perPage() + 8
	move := min(last.count-r.perPage()/2, maxShorten/r.pageSize)
	for size = min(r.perPage()/2, len(zeros)/r.pageSize); ; size = (size + 1) / 2 {
		places := 0
		for _, run := range runs {
			places += run / size
		}
		places -= 6 + slack/size // the commit has pages of its own
		count = max(0, min(places, move/size))
		if count*size > move/2 || size == 1 || purging && size <= looseSize && last.count <= looseMost*r.perPage() {
			return count, size, slack
		}
	}
}
