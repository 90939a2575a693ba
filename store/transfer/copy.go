package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ErrUnreadable is wrapped by the errors of [Copy] and [Summarize] if a record in a store cannot be
// read. The error names the record. Supply the sealing keys that are missing, or delete the record
// if it is damaged.
var ErrUnreadable = errors.New("cannot be read")

// ErrDiffer is wrapped by the error of [Copy] if the target and the source have different records.
// The error names the kinds that differ.
var ErrDiffer = errors.New("the stores differ")

// CopyOptions are options of [Copy]. The zero CopyOptions works.
type CopyOptions struct {
	// After resumes an earlier copy from the same source to the same target at a Position that it
	// reported. Empty means to start from the beginning, which only takes longer.
	After string

	// PageSize is the number of records that are exported and imported at a time: 1 to 10,000.
	// Larger pages need fewer commits and more memory. Default: 1,000.
	PageSize int

	// Progress is called after each copied or compared page, never concurrently. It must be quick,
	// and must not call the stores. Default: none.
	Progress func(Progress)

	// LeftFor is the place that the data moves to, such as "PostgreSQL at db.internal". It must not
	// contain a password. Once both sides are equal, Copy marks the source as moved there, if the
	// source has the capability Leave. Empty means no mark.
	LeftFor string
}

// Progress is the progress of a copy.
type Progress struct {
	Comparing bool // all records are copied, and Copy now compares both sides

	// Records is the number of records that this call has copied or, with Comparing, the number of
	// source records that it has counted. Kind is the kind of the last record.
	Records int
	Kind    Kind

	// Position is the CopyOptions.After that resumes the copy here; empty with Comparing.
	Position string
}

// Copy copies all records of the source to the target in one pass, then compares both and returns
// the counts and checksums of each kind. Times that lie in the future may differ in the target.
// Copy works between any two stores, in either direction.
//
// During a copy nothing else may use either store: stop the host, and open both stores without a
// Handler. The target must be empty or hold only records of an earlier, incomplete copy; other
// records count as differences.
//
// Copy can be interrupted at any moment, even by a kill: call it again, from the beginning or from
// the last Position reported to Progress. Existing records are not added again, so no record is
// lost or duplicated. Do not resume after the target has been used: records deleted from it would
// return. [CopyOptions.LeftFor] guards against that.
//
// Copy returns errors of the stores and errors that wrap [ErrUnreadable], [ErrDiffer],
// [ErrConflict] or [ErrRecord]. After ErrDiffer the source is unchanged and not marked.
func Copy(ctx context.Context, target, source Store, options CopyOptions) (Summary, error) {
	if options.PageSize == 0 {
		options.PageSize = 1000
	}
	if options.PageSize < 1 || options.PageSize > 10_000 {
		return nil, fmt.Errorf("PageSize must be 1 to 10000, got %d", options.PageSize)
	}
	if options.Progress == nil {
		options.Progress = func(Progress) {}
	}
	if err := copyPages(ctx, target, source, &options); err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	sums, err := compare(ctx, target, source, &options, time.Time{})
	if errors.Is(err, ErrDiffer) { // perhaps only times in the future differ, see [NoLater]
		if _, again := compare(ctx, target, source, &options, time.Now().Add(-recent)); !errors.Is(again, ErrDiffer) {
			err = again
		}
	}
	if err != nil {
		return nil, fmt.Errorf("compare source and target: %w", err)
	}
	if leave := source.Capabilities().Leave; leave != nil && options.LeftFor != "" {
		if err := leave(ctx, options.LeftFor); err != nil {
			return nil, fmt.Errorf("mark the source as moved: %w", err)
		}
	}
	return sums, nil
}

// copyPages imports each page while it exports the next one.
func copyPages(ctx context.Context, target, source Store, options *CopyOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	pages := make(chan Page)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	group.Go(func() {
		defer close(pages)
		for page, err := range pagesFrom(ctx, source, "", options.After, options.PageSize) {
			if err == nil {
				err = readable(page)
			}
			if err != nil {
				cancel(err)
				return
			}
			select {
			case pages <- page:
			case <-ctx.Done():
				return
			}
		}
	})
	progress := Progress{Position: options.After}
	for page := range pages {
		if err := target.Import(ctx, page.Records); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if n := len(page.Records); n > 0 {
			progress.Records += n
			progress.Kind = page.Records[n-1].Kind()
		}
		if page.Next != "" {
			progress.Position = page.Next
		}
		options.Progress(progress)
	}
	return context.Cause(ctx)
}

// recent is longer than any copy takes. The second comparison ignores publication and request times
// of the last 48 hours, and so all future times that the target has replaced.
const recent = 48 * time.Hour

// compare summarizes both sides concurrently and compares them. All publication and request times
// after since count as equal, unless since is zero.
func compare(ctx context.Context, target, source Store, options *CopyOptions, since time.Time) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var copied Summary
	var failed error
	var group sync.WaitGroup
	group.Go(func() {
		if copied, failed = summarize(ctx, target, "", options.PageSize, since, func(Page) {}); failed != nil {
			cancel()
		}
	})
	progress := Progress{Comparing: true}
	sums, err := summarize(ctx, source, "", options.PageSize, since, func(page Page) {
		if n := len(page.Records); n > 0 {
			progress.Records += n
			progress.Kind = page.Records[n-1].Kind()
			options.Progress(progress)
		}
	})
	if err != nil {
		cancel()
	}
	group.Wait()
	if err != nil || failed != nil {
		if failed != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = failed
		}
		return nil, err
	}
	return sums, sums.Compare(copied)
}

// summarize implements Summarize. It reads pages of the given size, and passes every page to the
// function each. Publication and request times after since count as since, unless since is zero.
func summarize(ctx context.Context, s Store, account string, size int, since time.Time, each func(Page)) (Summary, error) {
	sums := make(Summary)
	for page, err := range Pages(ctx, s, account, size) {
		if err == nil {
			err = readable(page)
		}
		if err != nil {
			return nil, err
		}
		for _, r := range page.Records {
			if !since.IsZero() {
				r = withoutTime(r, since)
			}
			sums.Add(r)
		}
		each(page)
	}
	return sums, nil
}

// withoutTime returns the record with its publication or request time limited to since.
func withoutTime(r Record, since time.Time) Record {
	switch r := r.(type) {
	case *Event:
		if event := *r; !event.PublishedAt.Before(since) {
			event.PublishedAt = since
			return &event
		}
	case *Request:
		if request := *r; !request.At.Before(since) {
			request.At = since
			return &request
		}
	}
	return r
}

// readable returns an error that wraps ErrUnreadable and names the page's unreadable records, or
// nil.
func readable(page Page) error {
	if len(page.Unreadable) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnreadable, strings.Join(page.Unreadable, ", "))
}
