package simulation_test

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

const day = 24 * time.Hour

// A plan is the part of a simulation that its seed determines: the number of operations, the faults
// and their times. It does not determine the order of calls at the same instant.
type plan struct {
	rand     *rand.Rand
	onDisk   bool
	config   webhooks.Config
	accounts int
	crowd    int // number of hanging receivers for a part of the day
	flood    string
	floodAt  time.Duration
	eras     []era
	windows  []window
	strikes  []strike
}

// An era is a part of the day with its own bubble. All bubbles begin at the same time, which
// simulates a clock that is set while the host is down.
type era struct {
	ahead time.Duration // how long the bubble sleeps before the era begins
	from  time.Duration
	to    time.Duration
}

// A strike is an action on the host or its receivers at a given time.
type strike struct {
	at   time.Duration
	what string
	arg  int
	for_ time.Duration
}

// Kinds of strikes.
const (
	strikeStop    = "stop"    // the host shuts down properly and restarts
	strikeHasty   = "hasty"   // the store is closed while the host uses it, and the host restarts
	strikeKill    = "kill"    // the host dies and restarts
	strikeMood    = "mood"    // a receiver changes its behavior
	strikeExhaust = "exhaust" // the host has no descriptors for some time
	strikeWall    = "wall"    // the service's clock jumps
	strikeDisk    = "disk"    // the disk fails for some time
	strikeClock   = "clock"   // the system's clock jumps for the file, and is corrected later
)

// span returns a random duration between least and most. All orders of magnitude are equally
// likely.
func span(r *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), r.Float64()))
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func newPlan(seed uint64, onDisk bool) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := plan{rand: r, onDisk: onDisk, accounts: 2}
	p.config = webhooks.Config{
		Concurrency:   webhooks.Concurrency{Total: pick(r, 8, 16, 64, 1024)},
		MaxPerAccount: -1,
	}
	p.config.Retry.Delays = pick(r, webhooks.DefaultRetries(), []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute}, []time.Duration{time.Second, 30 * time.Second, time.Hour, 2 * time.Hour})
	p.config.Retry.DisableAfter = pick(r, 0, 0, 6*time.Hour)
	if r.IntN(6) == 0 {
		p.crowd = 3 * min(p.config.Concurrency.Total, 24)
		p.config.Concurrency.Total = min(p.config.Concurrency.Total, 24)
	}
	if r.IntN(3) == 0 {
		p.flood = pick(r, floodResends, floodRefused, floodRenames, floodNames)
		p.floodAt = time.Hour + time.Duration(r.Int64N(int64(day-2*time.Hour)))
	}
	if r.IntN(4) == 0 {
		p.config.Outbound.MaxIdleConns = 2 // fewer than receivers
	}
	if p.flood == floodNames {
		p.config.Concurrency.Total, p.crowd = 1024, 0 // otherwise slots run out
	}
	p.eras = []era{{0, 0, day}}
	if onDisk && r.IntN(3) == 0 { // the clock is set by less than the retention of payloads
		middle := day/4 + span(r, time.Hour, day/2)
		p.eras = []era{{span(r, time.Hour, 20*day), 0, middle}, {span(r, time.Hour, 20*day), middle, day}}
		for range 3 {
			p.strikes = append(p.strikes, strike{at: middle + span(r, time.Minute, 5*time.Hour), what: strikeStop})
		}
	}
	for range 4 + r.IntN(8) {
		p.windows = append(p.windows, newWindow(r))
	}
	p.strike(strikeStop, 1+r.IntN(3), 0, 0)
	p.strike(strikeHasty, r.IntN(3), 0, 0)
	p.strike(strikeKill, r.IntN(4), 0, 0)
	p.strike(strikeMood, 60, time.Second, time.Hour)
	p.strike(strikeExhaust, 1+r.IntN(3), 5*time.Second, 5*time.Minute)
	p.strike(strikeWall, r.IntN(3), 0, 0)
	if onDisk {
		p.strike(strikeDisk, 3+r.IntN(6), time.Second, 5*time.Minute)
		p.strike(strikeClock, r.IntN(2), time.Minute, 20*time.Hour)
	}
	slices.SortStableFunc(p.strikes, func(a, b strike) int { return int(a.at - b.at) })
	return p
}

func (p *plan) strike(what string, n int, least, most time.Duration) {
	for range n {
		s := strike{at: time.Duration(p.rand.Int64N(int64(day))), what: what, arg: p.rand.IntN(1 << 20)}
		if least > 0 {
			s.for_ = span(p.rand, least, most)
		}
		p.strikes = append(p.strikes, s)
	}
}

// methods are the sets of methods that a window can affect.
var methods = [][]string{
	nil,
	{"Settle"},
	{"Settle"},
	{"Load"},
	{"Load", "Settle"},
	{"Enqueue", "UpdateAlert", "UpdateScan", "EnqueueOnce", "UnseenKeys"},
	{"KeyByHash", "KeyByID", "ListKeys", "ExpiringKeys"},
	{"CreateKey", "UpdateKey", "DeleteKey", "RecordKeyUse", "CreateWebhook", "UpdateWebhook", "DeleteWebhook"},
	{"EraseAccount", "AddAuditEntries"},
	{"LeaseAudit", "PendingAccounts", "PendingAuditEntries", "TakeAuditEntries"},
	{"DueAlerts", "AdvanceRecovery", "Purge", "CreateRecovery", "RecoveryByID", "Redeliver"},
}

func newWindow(r *rand.Rand) window {
	w := window{fault: pick(r, before, before, after, hang, stall), chance: pick(r, 0.3, 1, 1)}
	w.from = time.Duration(r.Int64N(int64(day)))
	w.to = w.from + pick(r, span(r, time.Second, 10*time.Minute), 30*time.Second, 90*time.Second, 5*time.Minute, time.Hour)
	if list := pick(r, methods...); list != nil {
		w.methods = make(map[string]bool)
		for _, method := range list {
			w.methods[method] = true
		}
	}
	return w
}

// noFiles is the file source of a host without expiring files.
func noFiles(context.Context, string, time.Time) iter.Seq2[alerts.StoredFile, error] {
	return func(func(alerts.StoredFile, error) bool) {}
}
