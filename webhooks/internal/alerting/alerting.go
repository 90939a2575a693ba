// Package alerting decides which alerts follow from reports of balances, usage and
// files that expire. It is pure: the stored state, the report and the time go in, the
// decision and the next state come out.
//
//	d := policy.ReportBalance(state, due, balance, subscribers)
//	store(d.State)
//	notify(d.Low)
//
// The state is bytes that only this package reads. A state that cannot be read counts
// as none, so reports go on and the next state can be read.
package alerting

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// Reached is the level of a limit that is reached. Levels count millionths of a limit,
// which makes them exact.
const Reached = 1_000_000

// Level returns the level of a ratio, a part of a limit from 0 to 1.
func Level(ratio float64) uint32 { return uint32(math.Round(ratio * Reached)) }

// Ratio returns the ratio of a level.
func Ratio(level uint32) float64 { return float64(level) / Reached }

// A Policy says when reports fire alerts.
type Policy struct {
	threshold  uint64          // of subscribers that have none; 0: none
	hysteresis uint64          // how far above its threshold a balance has recovered
	levels     []uint32        // ascending; the last one is Reached
	leads      []time.Duration // ascending
}

// NewPolicy returns a policy: balances below the threshold are low until they are the
// hysteresis above it, the ratios are the parts of a limit that are notified before it
// is reached, and files are notified the leads before they expire.
func NewPolicy(threshold, hysteresis uint64, ratios []float64, leads []time.Duration) Policy {
	p := Policy{threshold: threshold, hysteresis: hysteresis, leads: slices.Sorted(slices.Values(leads))}
	for _, ratio := range ratios {
		p.levels = append(p.levels, Level(ratio))
	}
	slices.Sort(p.levels)
	p.levels = append(slices.Compact(p.levels), Reached)
	return p
}

// LongestLead returns how long before its expiry a file is first notified.
func (p *Policy) LongestLead() time.Duration { return p.leads[len(p.leads)-1] }

// Lead returns for which lead a file that expires then is due: the shortest that has
// begun. It reports false if none has, or if the file has expired.
func (p *Policy) Lead(expires, now time.Time) (lead time.Duration, due bool) {
	left := expires.Sub(now)
	i, _ := slices.BinarySearch(p.leads, left)
	if left <= 0 || i == len(p.leads) {
		return 0, false
	}
	return p.leads[i], true
}

// appendText appends a text that cutText reads.
func appendText(state []byte, text string) []byte {
	return append(binary.AppendUvarint(state, uint64(len(text))), text...)
}

// cutText reads a text; it reports false if there is none.
func cutText(state []byte) (text, rest []byte, ok bool) {
	n, size := binary.Uvarint(state)
	if size <= 0 || n > uint64(len(state)-size) {
		return nil, nil, false
	}
	return state[size : size+int(n)], state[size+int(n):], true
}
