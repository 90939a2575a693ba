package alerts_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
)

// toldFiles returns the IDs of the files in each event published since the last call.
func (s *teller) toldFiles(tb testing.TB) (events [][]string) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.events {
		var body struct {
			Data struct{ Files []struct{ ID string } }
		}
		if err := json.Unmarshal(event.Body, &body); err != nil {
			tb.Fatal(err)
		}
		var ids []string
		for _, f := range body.Data.Files {
			ids = append(ids, f.ID)
		}
		events = append(events, ids)
	}
	s.events = nil
	return events
}

func (s *teller) wantFiles(tb testing.TB, after string, want ...[]string) {
	tb.Helper()
	if diff := cmp.Diff(want, s.toldFiles(tb)); diff != "" {
		tb.Errorf("told after %s (-want +got):\n%s", after, diff)
	}
}

func expiring(id string, at time.Time) alerts.ExpiringFile {
	return alerts.ExpiringFile{ID: id, ExpiresAt: at}
}

func TestFiles_LeadBegins_NotifyOnce(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	box, clock := newTeller(), testclock.At(noon)
	s := newService(t, box, testConfig{Now: clock.Now})
	file := expiring("file", noon.Add(30*day))
	for _, step := range []struct {
		left time.Duration
		told bool
	}{
		{30 * day, false}, {7*day + time.Millisecond, false}, {7 * day, true}, {6 * day, false}, {day + time.Millisecond, false},
		{day, true}, {hour, false}, {time.Millisecond, false}, {0, false}, {-hour, false},
	} {
		clock.Set(file.ExpiresAt.Add(-step.left))
		for range 2 {
			noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{file, file}))
		}
		if step.told {
			box.wantFiles(t, step.left.String(), []string{"file"})
		} else {
			box.wantFiles(t, step.left.String())
		}
	}
}

func TestFiles_ReportedAfterLeadsBegan_NotifyOnce(t *testing.T) {
	box, clock := newTeller(), testclock.At(noon)
	s := newService(t, box, testConfig{Now: clock.Now, Alerts: alerts.Config{FileLeads: []time.Duration{time.Hour, 10 * time.Hour, time.Minute}}})
	file := expiring("file", noon.Add(30*time.Minute))
	for range 2 {
		noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{file}))
	}
	box.wantFiles(t, "30 minutes before, at first", []string{"file"})
	clock.Set(noon.Add(29 * time.Minute))
	noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{file}))
	box.wantFiles(t, "a minute before", []string{"file"})
}

func TestFiles_ExpiryMoved_NotifyAgain(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	tell := func(account string, hours time.Duration) {
		t.Helper()
		noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{expiring("file", noon.Add(hours*time.Hour))}))
	}
	tell(account, 20)
	box.wantFiles(t, "the first report", []string{"file"})
	tell(account, 1000)
	tell(account, 20)
	box.wantFiles(t, "the same expiry, after one that is far away")
	tell(account, 21)
	box.wantFiles(t, "another expiry", []string{"file"})
	tell(account, 20)
	tell(account, 21)
	box.wantFiles(t, "late reports of both")
	tell("acct_2", 21)
	box.wantFiles(t, "a file of another account with that id", []string{"file"})
}

func TestFilesAreGrouped(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	var all []alerts.ExpiringFile
	var ids []string
	for i := range 2345 {
		all = append(all, expiring(fmt.Sprintf("file_%04d", i), noon.Add(time.Duration(1+i)*time.Minute)))
		ids = append(ids, all[i].ID)
	}
	every := func(n int) (part []alerts.ExpiringFile) {
		for i := 0; i < len(all); i += n {
			part = append(part, all[i])
		}
		return part
	}
	noError(t, s.ReportFiles(t.Context(), account, every(10)))
	events := box.toldFiles(t)
	if len(events) != 3 || len(events[0]) != 100 || len(events[1]) != 100 || len(events[2]) != 35 {
		t.Errorf("235 files came in %d events: %v", len(events), events)
	}
	noError(t, s.ReportFiles(t.Context(), account, all))
	more := box.toldFiles(t)
	if len(more) != 22 || len(more[0]) != 100 || len(more[21]) != 10 {
		t.Errorf("2110 others came in %d events", len(more))
	}
	told := slices.Concat(append(events, more...)...)
	slices.Sort(told)
	if diff := cmp.Diff(ids, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	noError(t, s.ReportFiles(t.Context(), account, all))
	noError(t, s.ReportFiles(t.Context(), account, nil))
	box.wantFiles(t, "all of them again")
}

// Events stay within the size limit even if the files have long names.
func TestFiles_LongNames_EventsStayWithinSizeLimit(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	var all []alerts.ExpiringFile
	for i := range 100 {
		f := expiring(fmt.Sprintf("file_%04d", i), noon.Add(time.Hour))
		f.Name = strings.Repeat("\x01", 2000) // six bytes each
		all = append(all, f)
	}
	noError(t, s.ReportFiles(t.Context(), account, all))
	events := box.toldFiles(t)
	if told := slices.Concat(events...); len(told) != 100 || len(events) > 10 {
		t.Errorf("%d files came in %d events", len(told), len(events))
	}
	all[1].ID, all[1].Name = "new", strings.Repeat("\x01", 3000)
	wantInvalid(t, s.ReportFiles(t.Context(), account, all), "files[1]")
	all[1].ID, all[1].Name = strings.Repeat("x", 513), ""
	wantInvalid(t, s.ReportFiles(t.Context(), account, all), "files[1].id")
	all[1].ID = "a\x00"
	wantInvalid(t, s.ReportFiles(t.Context(), account, all), "files[1].id")
	all[1].ID = ""
	wantInvalid(t, s.ReportFiles(t.Context(), account, all), "files[1].id")
	wantInvalid(t, s.ReportFiles(t.Context(), "", all), "account")
	box.wantFiles(t, "files that break a rule")
}

// If several callers report the same files concurrently, only one notification is sent for each
// file.
func TestFiles_ReportedConcurrently_NotifyOnce(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	var reporters sync.WaitGroup
	for i := range 8 {
		reporters.Go(func() {
			var mine []alerts.ExpiringFile
			for j := range 500 {
				mine = append(mine, expiring(fmt.Sprintf("file_%04d", (i*100+j)%1000), noon.Add(time.Hour)))
			}
			if err := s.ReportFiles(t.Context(), account, mine); err != nil {
				t.Error(err)
			}
		})
	}
	reporters.Wait()
	told := slices.Concat(box.toldFiles(t)...)
	slices.Sort(told)
	if n := len(slices.Compact(slices.Clone(told))); n != 1000 || len(told) != n {
		t.Errorf("%d files were told of, %d different ones, want each of 1000 once", len(told), n)
	}
}

// The record that users were notified about a file is deleted one day after the file expires, and
// no earlier.
func TestFiles_DayAfterExpiry_AreForgotten(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		box, file := newTeller(), expiring("file", time.Now().Add(20*time.Hour))
		s := newService(t, box, testConfig{})
		start(t, s)
		noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{file}))
		kept := func() bool {
			t.Helper()
			fresh, err := box.UnseenKeys(t.Context(), account, []driver.DedupKey{{Key: "24h0m0s/file", Until: file.ExpiresAt}})
			noError(t, err)
			return len(fresh) == 0
		}
		time.Sleep(20*time.Hour + 23*time.Hour)
		if !kept() {
			t.Error("the deduplication key was forgotten too early")
		}
		noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{file}))
		box.wantFiles(t, "two reports", []string{"file"})
		time.Sleep(2 * time.Hour)
		if kept() {
			t.Error("the deduplication key is kept a day after the file has expired")
		}
	})
}
