package feed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/postgres/internal/feed"
)

// A listening node reads the change feed once a second. It reads within PollEvery while hosts
// publish in transactions, and afterwards until those transactions have ended.
func TestPollPolicy_HostPublishes_ReadsWithinPollEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const poll = 100 * time.Millisecond
		p := feed.PollPolicy{Trusted: 6 * time.Second}
		want := func(when string, want time.Duration) {
			t.Helper()
			if got := p.Interval(poll); got != want {
				t.Errorf("%s: interval %v, want %v", when, got, want)
			}
		}
		read := func(oldest, next int64) { p.Record(time.Now(), 0, &feed.Snapshot{Min: oldest, Max: next}) }
		want("not listening", poll)
		p.AddListener(1)
		want("listening", time.Second)
		if got := p.Interval(time.Hour); got != time.Hour {
			t.Errorf("PollEvery of an hour: interval %v, want 1h", got)
		}
		p.HostPublishes()
		want("a host publishes", poll)
		read(50, 60)
		time.Sleep(1900 * time.Millisecond)
		want("1.9 s later", poll)
		read(55, 70)
		time.Sleep(200 * time.Millisecond)
		want("2.1 s later, transaction 55 is open", poll)
		read(69, 80)
		want("transaction 69 is open", poll)
		read(70, 80)
		want("all transactions before 70 have ended", time.Second)
		p.AddListener(-1)
		want("no longer listening", poll)
	})
}

func TestPollPolicy_ManyChanges_PollsInsteadOfBeingNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy = 33 * time.Millisecond
		p := feed.PollPolicy{Trusted: 6 * time.Second}
		p.AddListener(1)
		want := func(when string, busy bool, interval time.Duration) {
			t.Helper()
			if got := p.IsBusy(); got != busy {
				t.Errorf("%s: busy is %v, want %v", when, got, busy)
			}
			if got := p.Interval(time.Second); got != interval {
				t.Errorf("%s: interval %v, want %v", when, got, interval)
			}
		}
		second := func(found int) {
			p.Record(time.Now(), found, &feed.Snapshot{})
			time.Sleep(time.Second)
		}
		want("at first", false, time.Second)
		second(19)
		want("19 changes in a second", false, time.Second)
		second(20)
		want("20 changes in a second", true, busy)
		time.Sleep(time.Second / 2)
		want("between two decisions", true, busy)
		second(29)
		want("29 changes in 1.5 s", false, busy) // other nodes may still treat it as busy
		time.Sleep(5 * time.Second)
		want("6 s after the last busy heartbeat", false, time.Second)
	})
}

func TestParseSnapshot(t *testing.T) {
	for text, want := range map[string]*feed.Snapshot{
		"10:20:":         {Min: 10, Max: 20, Running: []int64{}},
		"10:20:10,14,15": {Min: 10, Max: 20, Running: []int64{10, 14, 15}},
		"10":             nil,
		"10:x:":          nil,
	} {
		got, err := feed.ParseSnapshot(text)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("ParseSnapshot(%q) = %v (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestSnapshot_SeesEarlierCommits(t *testing.T) {
	s := feed.Snapshot{Min: 10, Max: 20, Running: []int64{10, 14}}
	for transaction, want := range map[int64]bool{9: true, 10: false, 11: true, 14: false, 19: true, 20: false} {
		if got := s.Sees(transaction); got != want {
			t.Errorf("Sees(%d) = %v, want %v", transaction, got, want)
		}
	}
}
