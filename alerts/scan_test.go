package alerts_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
)

// A shelf holds a host's files, by ascending cursor.
type shelf struct {
	mu     sync.Mutex
	files  []alerts.StoredFile
	asked  []string // cursors after which scans began
	all    bool     // also yield files that expire late
	looked int      // number of files yielded
	breaks int      // index at which a scan fails once; 0 means none
	panics bool     // panic instead of returning an error
}

func newShelf(accounts, files int, expires func(i int) time.Time) *shelf {
	s := new(shelf)
	for i := range files {
		id := fmt.Sprintf("file_%07d", i)
		s.files = append(s.files, alerts.StoredFile{
			Account: fmt.Sprintf("acct_%03d", i%accounts), Cursor: id, File: expiring(id, expires(i)),
		})
	}
	return s
}

// oneOfTen makes every tenth file expire within a day, and the others in a year.
func oneOfTen(i int) time.Time {
	if i%10 == 0 {
		return time.Now().Add(20 * time.Hour)
	}
	return time.Now().AddDate(1, 0, 0)
}

var errShelf = errors.New("the database is gone")

func (s *shelf) source(ctx context.Context, after string, before time.Time) iter.Seq2[alerts.StoredFile, error] {
	return func(yield func(alerts.StoredFile, error) bool) {
		s.mu.Lock()
		s.asked = append(s.asked, after)
		files := s.files
		s.mu.Unlock()
		for _, f := range files {
			if f.Cursor <= after || !s.all && !f.File.ExpiresAt.Before(before) {
				continue
			}
			s.mu.Lock()
			s.looked++
			breaks := s.looked == s.breaks
			s.mu.Unlock()
			switch {
			case breaks && s.panics:
				panic("shelf")
			case breaks:
				yield(alerts.StoredFile{}, errShelf)
				return
			case !yield(f, nil):
				return
			}
		}
	}
}

// yielded returns the number of files yielded.
func (s *shelf) yielded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// begun returns the cursors after which scans began, since the last call.
func (s *shelf) begun() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func TestScan(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		// A file expires every minute. A scan is made every six minutes.
		const first, last = 168 * time.Minute, 24 * time.Minute
		began := time.Now()
		files := newShelf(3, 1000, func(i int) time.Time { return began.Add(time.Duration(i)*time.Minute + 30*time.Second) })
		box := newTeller()
		config := testConfig{Alerts: alerts.Config{Files: files.source, FileScanInterval: 6 * time.Minute, FileLeads: []time.Duration{first, last}}}
		stop := start(t, newService(t, box, config))
		time.Sleep(time.Minute)
		if told, looked := slices.Concat(box.toldFiles(t)...), files.yielded(); len(told) != 168 || looked != 168 {
			t.Errorf("%d were told of, %d looked at, want 168", len(told), looked)
		}
		time.Sleep(5*time.Minute + time.Second)
		if told := slices.Concat(box.toldFiles(t)...); len(told) != 6+6 { // the first lead and the last
			t.Errorf("%d were told of after six minutes more, want 12", len(told))
		}
		if asked := files.begun(); !slices.Equal(asked, []string{"", ""}) {
			t.Errorf("scans began after %q", asked)
		}

		// Another process continues the schedule.
		stop()
		time.Sleep(time.Minute)
		stop = start(t, newService(t, box, config))
		time.Sleep(4 * time.Minute)
		if asked := files.begun(); len(asked) != 0 {
			t.Errorf("a scan began too early, after %q", asked)
		}
		time.Sleep(time.Minute)
		if asked := files.begun(); len(asked) != 1 {
			t.Errorf("scans began after %q, want one", asked)
		}
		time.Sleep(1000 * time.Minute)
		told := map[string]int{}
		for _, id := range slices.Concat(box.toldFiles(t)...) {
			told[id]++
		}
		for i, f := range files.files[200:] {
			if told[f.File.ID] != 2 {
				t.Fatalf("%s, the file %d, was told of %d times", f.File.ID, 200+i, told[f.File.ID])
			}
		}
		stop()
	})
}

// An interrupted scan continues where it stopped, possibly in another process, and notifies about
// each file once.
func TestScan_Interrupted_ContinuesWhereItStopped(t *testing.T) {
	for name, panics := range map[string]bool{"an error": false, "a panic": true} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				files := newShelf(7, 35_000, oneOfTen)
				files.all = true
				files.breaks, files.panics = 25_000, panics
				files.files[5].File.ID = "" // breaks a rule
				box, log := newTeller(), &testlog.Book{}
				config := testConfig{Alerts: alerts.Config{Files: files.source}, Logger: log.Logger()}
				stop := start(t, newService(t, box, config))
				time.Sleep(time.Second)
				stop()
				if len(log.Lines("scan for expiring files failed")) != 1 || len(log.Lines("skipped invalid files", "files=1", "file.id is required")) != 1 {
					t.Errorf("the log has %s", log)
				}
				stop = start(t, newService(t, box, config))
				time.Sleep(time.Second)
				stop()
				if asked := files.begun(); !slices.Equal(asked, []string{"", "file_0019999"}) {
					t.Errorf("scans began after %q", asked)
				}
				told := map[string]int{}
				for _, event := range box.toldFiles(t) {
					for _, id := range event {
						told[id]++
					}
					if len(event) > 100 {
						t.Errorf("%d files in an event", len(event))
					}
				}
				if len(told) != 3500 {
					t.Errorf("%d files were told of", len(told))
				}
				for id, n := range told {
					if n != 1 {
						t.Fatalf("%s was told of %d times", id, n)
					}
				}
			})
		})
	}
}

// After the source or the store fails, the scan is retried soon.
func TestScan_Fails_IsRetriedSoon(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		soon := time.Now().Add(20 * time.Hour)
		files := newShelf(1, 10, func(int) time.Time { return soon })
		files.breaks = 5
		box := newTeller()
		start(t, newService(t, box, testConfig{Alerts: alerts.Config{Files: files.source}, Logger: new(testlog.Book).Logger()}))
		time.Sleep(59 * time.Second)
		box.wantFiles(t, "the failure")
		time.Sleep(2 * time.Second)
		if told := box.toldFiles(t); len(told) != 1 || len(told[0]) != 10 {
			t.Errorf("told of %v", told)
		}
	})
}

// Only one of several processes scans at a time. If it is killed, another one continues a minute
// later.
func TestScan_SeveralProcesses_OneScansAtATime(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		files := newShelf(1, 30_000, oneOfTen)
		files.all = true
		hold := make(chan struct{})
		slow := func(ctx context.Context, after string, before time.Time) iter.Seq2[alerts.StoredFile, error] {
			return func(yield func(alerts.StoredFile, error) bool) {
				n := 0
				for file, err := range files.source(ctx, after, before) {
					if n++; n == 15_000 {
						<-hold // as if killed: it neither continues nor releases its claim
					}
					if !yield(file, err) {
						return
					}
				}
			}
		}
		box := newTeller()
		start(t, newService(t, box, testConfig{Alerts: alerts.Config{Files: slow}}))
		synctest.Wait()
		for range 3 {
			start(t, newService(t, box, testConfig{Alerts: alerts.Config{Files: files.source}}))
		}
		time.Sleep(59 * time.Second)
		if asked := files.begun(); len(asked) != 1 {
			t.Errorf("scans began after %q, want one", asked)
		}
		time.Sleep(2 * time.Second)
		if asked := files.begun(); len(asked) == 0 || asked[0] != "file_0009999" {
			t.Errorf("scans began after %q", asked)
		}
		close(hold)
		time.Sleep(time.Second)
		told := slices.Concat(box.toldFiles(t)...)
		slices.Sort(told)
		if n := len(told); n != 3000 || len(slices.Compact(told)) != n {
			t.Errorf("%d were told of, %d different ones", n, len(slices.Compact(told)))
		}
		files.begun()
		time.Sleep(time.Hour)
		if asked := files.begun(); len(asked) != 1 {
			t.Errorf("an hour later scans began after %q, want one", asked)
		}
	})
}

// hasty is a store that first runs each change of the scan once and discards the result.
type hasty struct{ store.Store }

func (s hasty) UpdateScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	if _, err := change(nil); err != nil {
		return err
	}
	return s.Store.UpdateScan(ctx, change)
}

// A store may find out only at the end of an update that another process has claimed the scan.
func TestScan_ClaimConflictIsReportedLate_OneScans(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		files := newShelf(1, 10, oneOfTen)
		hold := make(chan struct{})
		defer close(hold)
		held := func(ctx context.Context, after string, before time.Time) iter.Seq2[alerts.StoredFile, error] {
			<-hold
			return files.source(ctx, after, before)
		}
		box := newTeller()
		start(t, newService(t, box, testConfig{Alerts: alerts.Config{Files: held}}))
		synctest.Wait()
		start(t, newService(t, hasty{box}, testConfig{Alerts: alerts.Config{Files: files.source}}))
		time.Sleep(59 * time.Second)
		if asked := files.begun(); len(asked) != 0 {
			t.Errorf("scans began after %q beside the one under way", asked)
		}
	})
}

// If Config.Files ends its goroutine or hangs, Run still returns a second after its context is
// done, and later scans are made.
func TestScan_FilesHangsOrExits_RunReturns(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var calls atomic.Int64
		var do atomic.Pointer[func()]
		files := func(context.Context, string, time.Time) iter.Seq2[alerts.StoredFile, error] {
			calls.Add(1)
			return func(func(alerts.StoredFile, error) bool) { (*do.Load())() }
		}
		logs := new(testlog.Book)
		exit := runtime.Goexit
		do.Store(&exit)
		stop := start(t, newService(t, memory.New(), testConfig{Alerts: alerts.Config{Files: files}, Logger: logs.Logger()}))
		time.Sleep(10*time.Minute + time.Second)
		if n := calls.Load(); n < 5 || len(logs.Lines("level=ERROR", "ended its goroutine")) != int(n) {
			t.Errorf("%d scans, logged\n%s", n, logs)
		}
		hung := make(chan struct{})
		defer close(hung)
		hang := func() { <-hung }
		do.Store(&hang)
		time.Sleep(10 * time.Minute)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Run returned after %v", took)
		}
		if lines := logs.Lines("level=ERROR", "task still running", "Config.Alerts.Files"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
	})
}
