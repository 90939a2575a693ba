// Package alerting decides which alerts follow from reports of balances, usage and expiring
// files. Its functions are pure: from the stored state, the report and the time they compute the
// decision and the next state.
//
//	d := policy.ReportBalance(state, due, balance, subscribers)
//	store(d.State)
//	notify(d.Low)
//
// Only this package reads the bytes of a state. An unreadable state counts as missing, so that
// the next report replaces it.
package alerting

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// Reached is the level of a fully used limit. Levels are whole millionths of a limit, so they can
// be compared exactly.
const Reached = 1_000_000

// Level returns the level of a ratio from 0 to 1.
func Level(ratio float64) uint32 { return uint32(math.Round(ratio * Reached)) }

// Ratio is the inverse of Level.
func Ratio(level uint32) float64 { return float64(level) / Reached }

// A Policy holds the settings that decide when a report causes an alert.
type Policy struct {
	threshold  uint64          // default for subscribers; 0 means none
	hysteresis uint64          // a low balance recovers at threshold + hysteresis
	levels     []uint32        // ascending; the last is Reached
	leads      []time.Duration // ascending
}

// NewPolicy returns a policy. A balance below threshold is low until it reaches threshold +
// hysteresis. Usage causes an alert at each ratio of the limit, and at the limit. A file causes an
// alert at each lead before it expires.
func NewPolicy(threshold, hysteresis uint64, ratios []float64, leads []time.Duration) Policy {
	p := Policy{threshold: threshold, hysteresis: hysteresis, leads: slices.Sorted(slices.Values(leads))}
	for _, ratio := range ratios {
		p.levels = append(p.levels, Level(ratio))
	}
	slices.Sort(p.levels)
	p.levels = append(slices.Compact(p.levels), Reached)
	return p
}

// LongestLead returns the time between a file's first alert and its expiry.
func (p *Policy) LongestLead() time.Duration { return p.leads[len(p.leads)-1] }

// Lead returns the shortest lead that has begun for a file with the given expiry. It returns
// false if none has begun, or if the file has expired.
func (p *Policy) Lead(expires, now time.Time) (lead time.Duration, due bool) {
	left := expires.Sub(now)
	i, _ := slices.BinarySearch(p.leads, left)
	if left <= 0 || i == len(p.leads) {
		return 0, false
	}
	return p.leads[i], true
}

// appendText appends a string in the format that cutText decodes.
func appendText(state []byte, text string) []byte {
	return append(binary.AppendUvarint(state, uint64(len(text))), text...)
}

// cutText decodes the string at the beginning of state, and returns the rest. It returns false if
// there is none.
func cutText(state []byte) (text, rest []byte, ok bool) {
	n, size := binary.Uvarint(state)
	if size <= 0 || n > uint64(len(state)-size) {
		return nil, nil, false
	}
	return state[size : size+int(n)], state[size+int(n):], true
}
