package alerts

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/storageapi/storageapi/alerts/internal/alerting"
	"github.com/storageapi/storageapi/internal/hostcode"
	"github.com/storageapi/storageapi/internal/input"
)

// A FileSource yields the files of all accounts that expire before the given time, and optionally
// other files, in a stable order, for example by ID. The sequence begins after the file that was
// yielded with the given cursor, even if that file is gone, or at the first file if the cursor is
// empty. The scan ends at the first error in the sequence. An interrupted scan continues near the
// same place, possibly in another process: at once, or within a minute if the process was killed.
// Processes that share a store run one scan at a time.
//
//	func(ctx context.Context, after string, before time.Time) iter.Seq2[alerts.StoredFile, error] {
//		return files.Query(ctx, "WHERE id > $1 AND expires_at < $2 ORDER BY id", after, before)
//	}
type FileSource func(ctx context.Context, after string, before time.Time) iter.Seq2[StoredFile, error]

// A StoredFile is a file of an account, as a [FileSource] yields it.
type StoredFile struct {
	Account string
	Cursor  string // the file's position in the source's order, such as its ID; at most 1,024 bytes
	File    ExpiringFile
}

// A scanner scans all files once per interval and reports expiring ones. Its progress is stored;
// see [driver.AlertStore.UpdateScan].
type scanner struct {
	service  *AlertService
	files    FileSource
	interval time.Duration
}

const (
	scanStep  = 10_000 // files between two saves of the progress
	maxCursor = 1024
)

// run scans until ctx is done.
func (s *scanner) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := s.scanApart(ctx)
		if err != nil && ctx.Err() == nil {
			wait = min(s.interval, reevaluateInterval)
			s.service.logFailure("storageapi: scan for expiring files failed", err, wait)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// scanApart runs scan on a separate goroutine, because Config.Files may call [runtime.Goexit].
func (s *scanner) scanApart(ctx context.Context) (wait time.Duration, err error) {
	if returned := <-hostcode.Go(func() { wait, err = s.scan(ctx) }); !returned {
		return 0, errors.New("Config.Alerts.Files ended its goroutine")
	}
	return wait, err
}

// scan begins or continues a scan, unless it is too early or another process scans. It returns
// the wait until it should be called again.
func (s *scanner) scan(ctx context.Context) (wait time.Duration, err error) {
	at, err := s.progress(ctx, func(at alerting.Scan) alerting.Scan {
		if wait = at.Wait(s.service.now(), s.interval); wait > 0 {
			return at
		}
		return at.Start(s.service.now())
	})
	if err != nil || wait > 0 {
		return wait, err
	}
	if err := s.scanRest(ctx, &at); err != nil {
		at.Claim = time.Time{} // another process may continue at once
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostcode.Grace)
		defer cancel()
		return 0, errors.Join(err, s.keep(release, at))
	}
	at.Done = true
	err = s.keep(ctx, at)
	return at.Wait(s.service.now(), s.interval), err
}

// scanRest checks the remaining files of the scan.
func (s *scanner) scanRest(ctx context.Context, at *alerting.Scan) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("panic in Config.Alerts.Files") // the value could hold secrets
		}
	}()
	step := scanned{due: make(map[string][]ExpiringFile)}
	for file, err := range s.files(ctx, at.Cursor, s.service.now().Add(s.service.policy.LongestLead())) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if len(file.Cursor) > maxCursor {
			return input.Invalid("Cursor", fmt.Sprintf("must have at most %d bytes", maxCursor))
		}
		next := file.Cursor
		step.add(s.service, &file)
		if step.files < scanStep {
			continue
		}
		if err := s.report(ctx, &step); err != nil {
			return err
		}
		at.Cursor = next
		*at = at.Extend(s.service.now())
		if err := s.keep(ctx, *at); err != nil {
			return err
		}
		step = scanned{due: make(map[string][]ExpiringFile)}
	}
	return s.report(ctx, &step)
}

// scanned is the result of a part of a scan.
type scanned struct {
	files   int
	due     map[string][]ExpiringFile // by account
	refused int                       // files that break a rule
	why     error                     // the error of the first refused file
}

func (s *scanned) add(service *AlertService, f *StoredFile) {
	s.files++
	err := input.Account(f.Account)
	isDue := false
	if err == nil {
		_, isDue, err = service.due(&f.File, "file", service.now())
	}
	switch {
	case err != nil:
		if s.refused++; s.refused == 1 {
			s.why = err
		}
	case isDue:
		s.due[f.Account] = append(s.due[f.Account], f.File)
	}
}

// report reports the expiring files.
func (s *scanner) report(ctx context.Context, step *scanned) error {
	if step.refused > 0 {
		s.service.logger.Warn("storageapi: skipped invalid files from Config.Alerts.Files", "files", step.refused, "the_first", step.why)
	}
	for account, files := range step.due {
		if err := s.service.ReportFiles(ctx, account, files); err != nil {
			return err
		}
	}
	return nil
}

// progress updates the stored progress of the scan.
func (s *scanner) progress(ctx context.Context, change func(alerting.Scan) alerting.Scan) (at alerting.Scan, err error) {
	err = s.service.store.UpdateScan(ctx, func(state []byte) ([]byte, error) {
		at = change(alerting.ParseScan(state))
		return at.Encode(), nil
	})
	return at, err
}

// keep stores the progress of the scan.
func (s *scanner) keep(ctx context.Context, at alerting.Scan) error {
	_, err := s.progress(ctx, func(alerting.Scan) alerting.Scan { return at })
	return err
}
