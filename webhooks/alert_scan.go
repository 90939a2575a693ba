package webhooks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"
)

// A FileSource yields the files of all accounts that expire before the given time,
// or more, in an order that stays as it is: by their ids, say. It begins after the
// file that had the given cursor when it was yielded, which may be gone; at the
// first one if the cursor is empty. It ends at the first error it yields. A scan that
// was interrupted goes on at about where it was, also in another process: at once, or
// within a minute if the process was killed. Of several processes that share a store
// one scans at a time.
//
//	func(ctx context.Context, after string, before time.Time) iter.Seq2[webhooks.StoredFile, error] {
//		return files.Query(ctx, "WHERE id > $1 AND expires_at < $2 ORDER BY id", after, before)
//	}
type FileSource func(ctx context.Context, after string, before time.Time) iter.Seq2[StoredFile, error]

// A StoredFile is a file of an account, as a [FileSource] yields it.
type StoredFile struct {
	Account string
	Cursor  string // where the file is in the source's order, such as its id; at most 1,024 bytes
	File    ExpiringFile
}

// A scanner looks through all files, once in an interval, and reports those that
// expire. How far it is, is kept; see [Store.UpdateFileScan].
type scanner struct {
	service  *WebhookService
	files    FileSource
	interval time.Duration
	logger   *slog.Logger
}

const (
	scanStep  = 10_000      // files between two notes of how far the scan is
	scanClaim = time.Minute // how long after one of them others wait
	maxCursor = 1024
)

func newScanner(s *WebhookService, config Config) *scanner {
	return &scanner{s, config.Files, config.FileScanInterval, config.Logger}
}

// run scans until ctx is done.
func (s *scanner) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := s.scanApart(ctx)
		if err != nil && ctx.Err() == nil {
			wait = min(s.interval, maintainInterval)
			if !s.service.dispatcher.halt.explains() {
				s.logger.Error("storageapi: the scan for expiring files was interrupted", "error", err, "again_in", wait)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// scanApart is scan on a goroutine of its own, which Config.Files may end.
func (s *scanner) scanApart(ctx context.Context) (wait time.Duration, err error) {
	if returned := <-apart(func() { wait, err = s.scan(ctx) }); !returned {
		return 0, errors.New("Config.Files ended its goroutine")
	}
	return wait, err
}

// scan begins a scan, or goes on with one, unless it is too early or another process
// is at it; it returns when to look again.
func (s *scanner) scan(ctx context.Context) (wait time.Duration, err error) {
	at, err := s.progress(ctx, func(at scan) scan {
		if wait = s.wait(at); wait > 0 {
			return at
		}
		if at.done {
			at = scan{begun: s.service.now()}
		}
		return s.claimed(at)
	})
	if err != nil || wait > 0 {
		return wait, err
	}
	if err := s.look(ctx, &at); err != nil {
		at.claim = time.Time{} // somebody else may go on at once
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		_, releaseErr := s.progress(release, func(scan) scan { return at })
		return 0, errors.Join(err, releaseErr)
	}
	at.done = true
	_, err = s.progress(ctx, func(scan) scan { return at })
	return s.wait(at), err
}

// wait returns how long it is until somebody may scan: if the last scan is done, an
// interval after it began. The clock may have been set back meanwhile.
func (s *scanner) wait(at scan) time.Duration {
	now := s.service.now()
	if at.done {
		return min(at.begun.Add(s.interval).Sub(now), s.interval)
	}
	return min(at.claim.Sub(now), scanClaim)
}

// claimed keeps other processes from scanning for a while.
func (s *scanner) claimed(at scan) scan {
	at.claim = s.service.now().Add(scanClaim)
	return at
}

// look looks at the files that are left.
func (s *scanner) look(ctx context.Context, at *scan) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("panic in Config.Files") // its value could hold anything
		}
	}()
	step := scanned{due: make(map[string][]ExpiringFile)}
	for file, err := range s.files(ctx, at.cursor, s.service.now().Add(s.service.alerts.longestLead())) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if len(file.Cursor) > maxCursor {
			return invalid("Cursor", fmt.Sprintf("must have at most %d bytes", maxCursor))
		}
		next := file.Cursor
		step.add(&s.service.alerts, &file, s.service.now())
		if step.looked < scanStep {
			continue
		}
		if err := s.report(ctx, &step); err != nil {
			return err
		}
		at.cursor = next
		*at = s.claimed(*at)
		if _, err := s.progress(ctx, func(scan) scan { return *at }); err != nil {
			return err
		}
		step = scanned{due: make(map[string][]ExpiringFile)}
	}
	return s.report(ctx, &step)
}

// scanned is what a part of a scan found.
type scanned struct {
	looked  int
	due     map[string][]ExpiringFile // by account
	refused int                       // files that break a rule
	why     error                     // the first of them did
}

func (s *scanned) add(p *alertPolicy, f *StoredFile, now time.Time) {
	s.looked++
	err := checkAccount(f.Account)
	isDue := false
	if err == nil {
		_, isDue, err = p.due(&f.File, "file", now)
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

// report reports what was found.
func (s *scanner) report(ctx context.Context, step *scanned) error {
	if step.refused > 0 {
		s.logger.Warn("storageapi: files that Config.Files yields break a rule, and are passed over", "files", step.refused, "the_first", step.why)
	}
	for account, files := range step.due {
		if err := s.service.ReportFiles(ctx, account, files); err != nil {
			return err
		}
	}
	return nil
}

// A scan is how far one is.
type scan struct {
	begun  time.Time
	claim  time.Time // until then a process is at it
	cursor string    // where it goes on
	done   bool
}

// progress changes how far the scan is; before the first one there is one that is
// done since long.
func (s *scanner) progress(ctx context.Context, change func(scan) scan) (at scan, err error) {
	err = s.service.store.UpdateFileScan(ctx, func(state []byte) ([]byte, error) {
		at = change(parseScan(state))
		return at.encode(), nil
	})
	return at, err
}

const scanVersion = 1

func (at *scan) encode() []byte {
	state := binary.BigEndian.AppendUint64([]byte{scanVersion}, uint64(at.begun.UnixMilli()))
	state = binary.BigEndian.AppendUint64(state, uint64(at.claim.UnixMilli()))
	if at.done {
		return append(state, 1)
	}
	return append(append(state, 0), at.cursor...)
}

func parseScan(state []byte) scan {
	if len(state) < 18 || state[0] != scanVersion {
		return scan{done: true}
	}
	at := func(field []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(field))).UTC() }
	return scan{at(state[1:]), at(state[9:]), string(state[18:]), state[17] == 1}
}
