package alerting

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"
)

// A Usage is a report of how much of a limit was used in a period.
type Usage struct {
	Used, Limit int64 // at least 0; a limit of 0 is none
	Period      string
}

// A UsageDecision is what follows from a report of usage.
type UsageDecision struct {
	State  []byte
	Levels []uint32 // to notify, ascending
}

// ReportUsage decides on a report. Each level is notified once a period, and again if
// the limit is raised; a report of an earlier period changes nothing. refused says what the
// period must be, and nothing is decided; empty: it is in order. now is called only if the
// period is another than before.
func (p *Policy) ReportUsage(state []byte, u Usage, now func() time.Time) (d UsageDecision, refused string) {
	s := parseUsage(state)
	d.State = state
	if u.Period != string(s.period) {
		now := now()
		if refused := checkPeriod(u.Period, string(s.period), now); refused != "" {
			return d, refused
		}
		if isFarAhead(string(s.period), now) {
			s = usageState{} // it was stored under a clock that was ahead
		}
	}
	changed := u.Limit != s.limit
	switch { // periods are compared byte by byte
	case u.Period < string(s.period):
		return d, ""
	case u.Period > string(s.period):
		s, changed = usageState{period: []byte(u.Period)}, true
	case height(u.Limit) > height(s.limit):
		s.notified = nil
	}
	s.limit, s.notified = u.Limit, slices.Clip(s.notified) // what is appended does not go into state
	for _, level := range p.levels {
		if u.Limit > 0 && uint64(u.Used) >= mark(u.Limit, level) && !s.wasNotified(level) {
			d.Levels = append(d.Levels, level)
			s.notified = binary.BigEndian.AppendUint32(s.notified, level)
		}
	}
	if changed || len(d.Levels) > 0 {
		d.State = s.encode()
	}
	return d, ""
}

// height makes a limit comparable: none is the highest.
func height(limit int64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return uint64(limit)
}

// mark returns from which use on a level of a limit is reached, rounded up.
func mark(limit int64, level uint32) uint64 {
	hi, lo := bits.Mul64(uint64(limit), uint64(level))
	lo, carry := bits.Add64(lo, Reached-1, 0)
	quotient, _ := bits.Div64(hi+carry, lo, Reached) // hi is less than 2¹⁹
	return quotient
}

// A usageState is what is kept of the reports of an account's use of bandwidth or
// transactions.
type usageState struct {
	period   []byte // the latest that was reported; empty: none
	limit    int64  // as it was last reported; 0: unlimited
	notified []byte // the levels that were notified in that period under that limit, each in four bytes
}

const usageVersion = 1

// parseUsage reads a state.
func parseUsage(state []byte) usageState {
	if len(state) < 9 || state[0] != usageVersion {
		return usageState{}
	}
	period, notified, ok := cutText(state[9:])
	if !ok || len(notified)%4 != 0 {
		return usageState{}
	}
	return usageState{period, int64(binary.BigEndian.Uint64(state[1:])), notified}
}

func (s *usageState) encode() []byte {
	state := append(make([]byte, 0, 16+len(s.period)+len(s.notified)), usageVersion)
	state = binary.BigEndian.AppendUint64(state, uint64(s.limit))
	state = appendText(state, string(s.period))
	return append(state, s.notified...)
}

func (s *usageState) wasNotified(level uint32) bool {
	for notified := range slices.Chunk(s.notified, 4) {
		if binary.BigEndian.Uint32(notified) == level {
			return true
		}
	}
	return false
}
