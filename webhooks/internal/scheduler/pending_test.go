package scheduler

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestNextWake_DeliveryDueLater_ReturnsItsDueTime(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.addAfter("a", 1, 3*time.Second)
		b.addAfter("b", 1, 2*time.Second)
		b.started(9)
		if got := b.wake(); got != 2*time.Second {
			t.Errorf("NextWake in %v, want 2s", got)
		}
		if got := time.Until(b.s.NextWake(time.Now().Add(time.Hour), false)); got != time.Hour {
			t.Errorf("NextWake in %v while no attempt may begin, want an hour", got)
		}
		time.Sleep(2*time.Second - time.Millisecond)
		b.started(9)
		time.Sleep(time.Millisecond)
		b.started(9, "b1")
		if got := b.wake(); got != time.Second { // the attempt for b1 must be inspected
			t.Errorf("NextWake in %v, want 1s", got)
		}
	})
}

func TestNextWake_AttemptInFlight_ReturnsItsInspection(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.started(9, "w1")
		if got := b.wake(); got != minLatency {
			t.Errorf("NextWake in %v, want %v", got, minLatency)
		}
		time.Sleep(minLatency)
		b.s.Tick()
		if got := b.wake(); got != time.Hour || !b.s.State("w").Slow {
			t.Errorf("NextWake in %v, slow %v after the inspection; want an hour and slow", got, b.s.State("w").Slow)
		}
	})
}

func TestAdd_DueAfterLongestRetry_IsDueAtLongestRetry(t *testing.T) {
	inBench(t, Config{LongestRetry: time.Minute}, func(b *bench) {
		b.addAfter("w", 1, 1000*time.Hour)
		if got := b.wake(); got != time.Minute {
			t.Errorf("NextWake in %v, want a minute", got)
		}
	})
}

// setWall moves the wall clock reading of at forward by the given duration. The monotonic reading
// stays the same.
func setWall(t *testing.T, at time.Time, by time.Duration) time.Time {
	inside := (*struct { // the layout in package time
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&at))
	before := at
	inside.wall += uint64(by/time.Second) << 30
	if at.Round(0).Sub(before.Round(0)) != by || at.Sub(before) != 0 {
		t.Fatal("the layout of time.Time has changed")
	}
	return at
}

// A time from a store has no monotonic reading and refers to the current wall clock. These tests do
// not run in a bubble, where times have no monotonic reading at all.
func TestAdd_WallClockWasSet_IsDueByTheNewClock(t *testing.T) {
	const day = 24 * time.Hour
	for _, by := range []time.Duration{0, -day, day, 3000 * day} {
		for _, read := range []bool{true, false} {
			b := newBench(t, Config{LongestRetry: 2 * day})
			b.s.epoch = setWall(t, b.s.epoch, -by) // as if set after the epoch
			r := b.store("w", 1, time.Minute)
			if read {
				r.due = r.due.Round(0)
			}
			b.s.Add([]Pending{b.pending("w", 1)})
			b.started(9)
			if got := b.wake(); got > time.Minute || got < 50*time.Second || b.loads > 0 {
				t.Errorf("clock set by %v: NextWake in %v after %d loads, want in a minute after 0", by, got, b.loads)
			}
		}
	}
}

func TestLoaded_StaleReportAfterWallClockWasSetBack_WaitsUntilDue(t *testing.T) {
	b := newBench(t, Config{})
	b.s.epoch = setWall(t, b.s.epoch, time.Hour)
	b.add("w", 1)
	r := b.rows[delivery{"w", 1}]
	r.attempts, r.due = 1, time.Now().Round(0).Add(time.Minute)
	for range 9 {
		b.started(9)
	}
	if b.loads != 1 {
		t.Errorf("loaded %d times before the due time, want once", b.loads)
	}
}

// failLong keeps a webhook failing for longer than longFailing. Afterwards, deliveries 1 and 2 wait
// for a scheduled retry, and delivery 3 until the time that the receiver asked for.
func failLong(b *bench) {
	b.Helper()
	b.hook(acct, Untried, "w")
	b.add("w", 1, 2)
	b.fail(time.Hour, b.started(9, "w1", "w2")...)
	b.hook(acct, Failing, "w")
	b.add("w", 3)
	made := b.started(9, "w3")
	b.answer(Failure, made...)
	b.settle(time.Hour, true, made...)
	time.Sleep(longFailing)
}

// recoverNow lets the next attempt succeed.
func recoverNow(b *bench) {
	b.Helper()
	b.add("w", 10)
	b.succeed(b.started(1, "w10")...)
	b.hook(acct, Proven, "w")
}

func TestUpdate_ReceiverRecovers_BringsScheduledRetriesForwardOnce(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		failLong(b)
		recoverNow(b)
		made := b.started(9, "w1", "w2")
		b.started(9)
		b.fail(time.Hour, made[0]) // fails for another reason: its next retry is not brought forward
		b.succeed(made[1])
		b.hook(acct, Failing, "w")
		time.Sleep(longFailing)
		recoverNow(b)
		b.started(9)
		time.Sleep(time.Hour)
		b.started(9, "w3", "w1")
	})
}

func TestUpdate_RecoveryAfterShortFailure_ReschedulesNothing(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.fail(time.Hour, b.started(9, "w1")...)
		b.hook(acct, Failing, "w")
		time.Sleep(longFailing - time.Second)
		recoverNow(b)
		b.started(9)
	})
}

func TestUpdate_ProvenAfterOpenBreaker_BringsRetriesForward(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.addAfter("w", 1, time.Hour)
		b.open("w")
		b.hook(acct, Failing, "w")
		b.add("w", 2)
		time.Sleep(2 * minPause)
		b.succeed(b.started(9, "w2")...)
		b.hook(acct, Proven, "w")
		b.started(9, "w1")
	})
}

func TestBacklog_CountsWaitingAndInFlight(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		begun := time.Now().UTC()
		b.add("a", 1, 2, 3)
		b.addRecovered("a", 4)
		b.addAfter("b", 1, time.Hour)
		want := func(webhook string, pending int, oldest time.Time) {
			t.Helper()
			if diff := cmp.Diff(Backlog{pending, oldest}, b.s.Backlog(webhook)); diff != "" {
				t.Errorf("Backlog of %q (-want +got):\n%s", webhook, diff)
			}
		}
		want("", 5, begun)
		want("a", 4, begun)
		want("b", 1, time.Time{})
		want("unknown", 0, time.Time{})
		time.Sleep(time.Second)
		b.add("b", 2)
		made := b.started(9, "a1", "b2", "a2")
		want("b", 2, time.Time{})
		b.answer(Success, made...)
		want("", 6, begun)
		b.settle(settled, false, made...)
		want("", 3, begun)
		b.turn("a", false)
		want("a", 2, time.Time{})
		want("", 3, time.Time{})
	})
}

func TestEnded_WaitingDeliveries_AreRemoved(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		made := b.started(9, "w1")
		b.add("w", 2, 3)
		b.s.Ended("w", []uint64{1, 2, 9})
		b.s.Ended("unknown", []uint64{1})
		b.wantPending(2)
		b.succeed(made...)
		b.succeed(b.started(9, "w3")...)
		b.wantPending(0)
	})
}

func TestClear_ForgetsWaitingButNotInFlight(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		down := errors.New("down")
		b.add("w", 1, 2)
		made := b.started(1, "w1")
		b.s.Pause([]int32{0})
		b.s.Clear(down)
		b.wantPending(1)
		if _, err := b.s.LongestWait(); !errors.Is(err, down) {
			t.Errorf("LongestWait error = %v, want %v", err, down)
		}
		b.add("w", 1, 2) // reported again
		b.s.Trouble(nil)
		if _, err := b.s.LongestWait(); err != nil {
			t.Errorf("LongestWait error = %v after all was reported, want nil", err)
		}
		second := b.started(9, "w2")
		b.succeed(made...)
		b.started(9)
		b.succeed(second...)
		b.wantPending(0)
	})
}

func TestLongestWait_CountsFromDueTimeOrLastAttempt(t *testing.T) {
	inBench(t, Config{PerAccount: 2}, func(b *bench) {
		want := func(what string, want time.Duration) {
			t.Helper()
			if got, err := b.s.LongestWait(); got != want || err != nil {
				t.Errorf("%s: LongestWait = %v, %v; want %v", what, got, err, want)
			}
		}
		want("nothing is pending", 0)
		b.addAfter("w", 1, time.Second)
		b.addAfter("w", 2, time.Second)
		b.addAfter("w", 3, time.Second)
		want("it is due later", 0)
		time.Sleep(3 * time.Second)
		want("no Next has seen it", 2*time.Second)
		picked, _ := b.pick(1)
		want("it is being loaded", 2*time.Second)
		b.load(picked)
		want("it is under way", 0)
		time.Sleep(time.Second)
		b.succeed(picked...)
		time.Sleep(500 * time.Millisecond)
		want("the last attempt has ended", 500*time.Millisecond)
		b.hook(acct, Failing, "w")
		time.Sleep(time.Second)
		want("it is failing", 0)
		b.hook(acct, Proven, "w")
		time.Sleep(time.Second)
		want("it is proven again", time.Second)
		b.turn("w", false)
		want("it is off", 0)
		b.turn("w", true)
		want("it is on again", 0)
		b.add("other", 1)
		full := b.started(2, "w2", "other1")
		b.add("third", 1)
		time.Sleep(time.Second)
		b.started(9)
		want("its account is at its cap", 0)
		b.answer(Unknown, full[1])
		want("its account has a free slot", time.Second)
		b.settle(settled, false, full[1])
	})
}

func BenchmarkLongestWait(b *testing.B) {
	for _, accounts := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("accounts=", accounts), func(b *testing.B) {
			s := New(Config{Slots: 256, PerWebhook: 16, PerAccount: 64, MaxUnrecorded: 1024, Timeout: time.Second})
			for i := range 100_000 {
				s.Add([]Pending{{Number: uint64(i), Webhook: Webhook{
					ID: fmt.Sprint("wh_", i%10_000), Account: fmt.Sprint("acct_", i%accounts), Version: 1, On: true, Standing: Proven,
				}, Due: time.Now().Add(-time.Hour)}})
			}
			s.Next(100, 100, func() (*Slot, Attempt) { a := new(attempt); return &a.Slot, a })
			b.ReportAllocs()
			for b.Loop() {
				if wait, _ := s.LongestWait(); wait == 0 {
					b.Fatal("nothing waits")
				}
			}
		})
	}
}

// BenchmarkAdd measures how long a commit waits for the scheduler: the duration of an Add of 64 new
// deliveries to a scheduler that has many pending, while slots are taken and freed. p50-µs and
// p99-µs are quantiles of that duration. heap-B and resident-B are bytes per pending delivery.
func BenchmarkAdd(b *testing.B) {
	for _, pending := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprint("pending=", pending), func(b *testing.B) {
			if testing.Short() && pending > 1_000_000 {
				b.Skip("needs half a GiB of memory: run without -short")
			}
			ids := make([]string, 10_000)
			for i := range ids {
				ids[i] = fmt.Sprintf("wh_%026d", i)
			}
			page := make([]Pending, 1000)
			fill := func(page []Pending, from int, due time.Time) {
				for i := range page {
					n := from + i
					page[i] = Pending{Number: uint64(n), Due: due, Webhook: Webhook{
						ID: ids[n%len(ids)], Account: ids[n%100], Version: 1, On: true, Standing: Proven,
					}}
				}
			}
			heap, resident := memory()
			s := New(Config{Slots: 256, PerWebhook: 16, PerAccount: 64, MaxUnrecorded: 1024, Timeout: time.Second})
			for from := 0; from < pending; from += len(page) {
				fill(page, from, time.Now().Add(time.Hour))
				s.Add(page)
			}
			heapNow, residentNow := memory()

			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
					}
					var begun []*attempt
					s.Next(64, 64, func() (*Slot, Attempt) { a := new(attempt); begun = append(begun, a); return &a.Slot, a })
					for _, a := range begun {
						s.Observe(&a.Slot, Success, time.Millisecond)
						s.FreeSlot(&a.Slot, false)
						s.End(&a.Slot, Fate{})
					}
				}
			}()
			var took []time.Duration
			for b.Loop() {
				fill(page[:64], pending+len(took)*64, time.Now())
				begun := time.Now()
				s.Add(page[:64])
				took = append(took, time.Since(begun))
				time.Sleep(time.Millisecond)
			}
			close(stop)
			<-stopped
			slices.Sort(took)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
			b.ReportMetric(float64(heapNow-heap)/float64(pending), "heap-B")
			b.ReportMetric(float64(residentNow-resident)/float64(pending), "resident-B")
		})
	}
}

// memory returns the heap in use and the resident memory of the process, if the system reports it.
func memory() (heap, resident int64) {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			resident, _ = strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
		}
	}
	return int64(stats.HeapAlloc), resident << 10
}
