package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ErrUnreadable is wrapped by the errors of [Copy] and [Summarize] if something in a store
// cannot be read. The error names it. Give the keys that its secrets are sealed under, or
// delete what is damaged.
var ErrUnreadable = errors.New("cannot be read")

// ErrDiffer is wrapped by the error of [Copy] if the target does not have what the source
// has. The error names the kinds that differ.
var ErrDiffer = errors.New("the stores differ")

// CopyOptions are options of [Copy]. The zero CopyOptions are fine.
type CopyOptions struct {
	// After is the Position of an earlier copy of the same source to the same target, from
	// which this one goes on; empty: from the beginning. A position that is lost costs
	// time and nothing else.
	After string

	// PageSize is how many records are exported and imported at a time: 1 to 10,000. More
	// make fewer commits, and take more memory. Default: 1,000.
	PageSize int

	// Progress is called in one goroutine at a time whenever a page was copied or compared.
	// It must be quick, and must not call the stores. Default: nothing is called.
	Progress func(Progress)

	// LeftFor marks the source as left for that place, such as "PostgreSQL at db.internal",
	// once both sides are the same, if the source is a store that can be left. It holds no password. Empty:
	// the source is not marked.
	LeftFor string
}

// Progress tells how far a copy is.
type Progress struct {
	Comparing bool // all is copied, and both sides are counted

	// Records is how many records have been copied since the call, or with Comparing how
	// many of the source have been counted. Kind is that of the last one.
	Records int
	Kind    Kind

	// Position is from where a later Copy goes on; empty with Comparing.
	Position string
}

// Copy copies all that the source has to the target, in one pass, and then compares what
// both have: counts and checksums of each kind, which it returns. Of what the source has of the future the times
// may differ. Between any two stores, and back.
//
// Meanwhile nothing else uses either store: stop the host, and open both without a Handler.
// The target is empty, or has a part of an earlier copy; what else it has is a difference.
//
// Copy can be cut short at any moment, also by a kill: call it again, from the beginning or
// from the last Position that Progress told. What is there already is not added again, so
// nothing is lost and nothing is there twice. Call it again only as long as the target was
// not used: what was deleted in the target since would come back. [CopyOptions.LeftFor]
// guards against that.
//
// The errors are those of the stores, and wrap [ErrUnreadable], [ErrDiffer], [ErrConflict] or
// [ErrRecord]. After ErrDiffer the source is as it was, and not marked.
func Copy(ctx context.Context, target, source Store, options CopyOptions) (Summary, error) {
	if options.PageSize == 0 {
		options.PageSize = 1000
	}
	if options.PageSize < 1 || options.PageSize > 10_000 {
		return nil, fmt.Errorf("PageSize: must be 1 to 10000, is %d", options.PageSize)
	}
	if options.Progress == nil {
		options.Progress = func(Progress) {}
	}
	if err := copyPages(ctx, target, source, &options); err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	sums, err := compare(ctx, target, source, &options, time.Time{})
	if errors.Is(err, ErrDiffer) { // perhaps in times of the future only, see [NoLater]
		if _, again := compare(ctx, target, source, &options, time.Now().Add(-recent)); !errors.Is(again, ErrDiffer) {
			err = again
		}
	}
	if err != nil {
		return nil, fmt.Errorf("compare what was copied: %w", err)
	}
	if leave := source.Capabilities().Leave; leave != nil && options.LeftFor != "" {
		if err := leave(ctx, options.LeftFor); err != nil {
			return nil, fmt.Errorf("mark the source as left: %w", err)
		}
	}
	return sums, nil
}

// copyPages imports each page while the next one is exported.
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

// recent is longer than a copy takes: what the source has of the future the target has of that time.
const recent = 48 * time.Hour

// compare counts both sides at the same time. Times since then at which events were published and requests made need
// not be equal; zero: all are.
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

// summarize is Summarize, in pages of that size, and calls each with every page. Times since then at which events were
// published and requests made do not count; zero: all do.
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
			if err := sums.Add(r); err != nil {
				return nil, err
			}
		}
		each(page)
	}
	return sums, nil
}

// withoutTime returns a record without when it was published or made, if that is not before the given time.
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

// readable returns an error if there is something on a page that cannot be read.
func readable(page Page) error {
	if len(page.Unreadable) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnreadable, strings.Join(page.Unreadable, ", "))
}
