package alerts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	maxFiles     = 100       // in an event
	maxFileID    = 512       // bytes of a file's ID
	maxFileBytes = 16 << 10  // of a file's JSON
	maxFilesSize = 192 << 10 // of the JSON of all files in an event

	unseenStep = 1000 // deduplication keys per lookup
)

// ReportFiles reports files of an account with their expiry times: all of its files, or only the
// soon-expiring ones, as often as the host likes. It publishes files.expiring events of at most 100
// files each. It notifies about a file once for each of [Config.FileLeads] and each expiry time. If
// several leads have begun when a file is first reported, it notifies only for the shortest. It
// does not notify about expired files.
//
// A file is identified by its ID, which has at most 512 bytes without control characters and is
// unique in its account. If a file breaks a rule, nothing is published, and the error names the
// file.
//
// When ReportFiles returns nil, all events are stored, as durably as by
// [webhooks.WebhookService.Publish]. When it returns an error that is not a
// [*apierr.ValidationError], some events may not be stored. Report again to be sure: no
// notification is repeated. The deduplication key of a file is kept until a day after the file has
// expired.
func (s *AlertService) ReportFiles(ctx context.Context, account string, files []ExpiringFile) error {
	if err := input.Account(account); err != nil {
		return err
	}
	var due []dueFile
	known := make(map[driver.DedupKey]bool)
	now := s.now()
	for i := range files {
		f, isDue, err := s.due(&files[i], fmt.Sprintf("files[%d]", i), now)
		if err != nil {
			return err
		}
		if isDue && !known[f.dedupKey] {
			known[f.dedupKey] = true
			due = append(due, f)
		}
	}
	if s.hides(TypeFilesExpiring) {
		return nil
	}
	fresh := due[:0]
	for len(due) > 0 {
		n := min(len(due), unseenStep)
		unseen, err := s.unseen(ctx, account, due[:n])
		if err != nil {
			return fmt.Errorf("report files: %w", err)
		}
		fresh, due = append(fresh, unseen...), due[n:]
	}
	for len(fresh) > 0 {
		n := oneEvent(fresh)
		if err := s.notify(ctx, account, fresh[:n]); err != nil {
			return fmt.Errorf("report files: %w", err)
		}
		fresh = fresh[n:]
	}
	return nil
}

// A dueFile is a file that is about to expire.
type dueFile struct {
	file     *ExpiringFile
	size     int // of its JSON
	dedupKey driver.DedupKey
}

// due validates a file and reports whether to notify about it now. Errors refer to the file as
// name.
func (s *AlertService) due(f *ExpiringFile, name string, now time.Time) (due dueFile, isDue bool, err error) {
	if field, problem := f.check(); problem != "" {
		return due, false, input.Invalid(name+field, problem)
	}
	if len(f.ID) > maxFileID || !input.PlainText(f.ID) {
		return due, false, input.Invalid(name+".id", fmt.Sprintf("must have at most %d bytes, and no control characters", maxFileID))
	}
	expires := f.ExpiresAt.UTC().Truncate(time.Millisecond)
	lead, isDue := s.policy.Lead(expires, now)
	if !isDue {
		return due, false, nil
	}
	text, err := f.MarshalJSON()
	switch {
	case err != nil:
		return due, false, err
	case len(text) > maxFileBytes:
		return due, false, input.Invalid(name, fmt.Sprintf("must encode to at most %d bytes of JSON, got %d", maxFileBytes, len(text)))
	}
	return dueFile{f, len(text), driver.DedupKey{Key: lead.String() + "/" + f.ID, Until: expires}}, true, nil
}

// oneEvent returns the number of leading files that fit into one event.
func oneEvent(files []dueFile) int {
	size := 0
	for i := range files {
		if size += files[i].size + len(","); i == maxFiles || size > maxFilesSize {
			return i
		}
	}
	return len(files)
}

// unseen removes, in place, the files for which a notification was already published, and returns
// the others.
func (s *AlertService) unseen(ctx context.Context, account string, files []dueFile) ([]dueFile, error) {
	fresh, err := s.store.UnseenKeys(ctx, account, dedupKeysOf(files))
	if err != nil {
		return nil, err
	}
	left := files[:0]
	for _, i := range fresh {
		left = append(left, files[i])
	}
	return left, nil
}

func dedupKeysOf(files []dueFile) []driver.DedupKey {
	dedupKeys := make([]driver.DedupKey, len(files))
	for i := range files {
		dedupKeys[i] = files[i].dedupKey
	}
	return dedupKeys
}

// notify publishes one event for the files, except for files that another process notifies about
// concurrently.
func (s *AlertService) notify(ctx context.Context, account string, files []dueFile) error {
	for len(files) > 0 {
		data := FilesExpiring{Files: make([]ExpiringFile, len(files))}
		for i := range files {
			data.Files[i] = *files[i].file
		}
		encoded, err := s.hooks.Encode(ctx, webhooks.Event{Account: account, Data: data})
		if err != nil {
			return err
		}
		begun := time.Now()
		deliveries, err := s.store.EnqueueOnce(ctx, encoded, dedupKeysOf(files))
		if !errors.Is(err, apierr.ErrExists) {
			s.published(ctx, begun, account, deliveries, err, &encoded)
			return err
		}
		if files, err = s.unseen(ctx, account, files); err != nil {
			return err
		}
	}
	return nil
}
