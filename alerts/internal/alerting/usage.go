package alerting

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"
)

// A Usage is a report of the use of a limit in a period.
type Usage struct {
	Used, Limit int64 // at least 0; a Limit of 0 means unlimited
	Period      string
}

// A UsageDecision is the result of a usage report.
type UsageDecision struct {
	State  []byte
	Levels []uint32 // to notify, ascending
}

// ReportUsage evaluates a usage report. It notifies about each level once per period, and again if
// the limit is raised. A report of an earlier period changes nothing. If the period is invalid,
// refused is the reason and the state does not change. now is called only if the period differs
// from the previous one.
func (p *Policy) ReportUsage(state []byte, u Usage, now func() time.Time) (d UsageDecision, refused string) {
	s := parseUsage(state)
	d.State = state
	if u.Period != string(s.period) {
		now := now()
		if refused := checkPeriod(u.Period, string(s.period), now); refused != "" {
			return d, refused
		}
		if isFarAhead(string(s.period), now) {
			s = usageState{} // the stored period is from a time when the clock was ahead
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
	s.limit, s.notified = u.Limit, slices.Clip(s.notified) // so that append does not write into state
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

// height maps a limit to a number for comparisons: unlimited, which is 0, becomes the highest.
func height(limit int64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return uint64(limit)
}

// mark returns the smallest use at which a level of a limit is reached.
func mark(limit int64, level uint32) uint64 {
	hi, lo := bits.Mul64(uint64(limit), uint64(level))
	lo, carry := bits.Add64(lo, Reached-1, 0)
	quotient, _ := bits.Div64(hi+carry, lo, Reached) // hi is less than 2¹⁹
	return quotient
}

// A usageState is the stored state of an account's reports of bandwidth or transactions.
type usageState struct {
	period   []byte // latest reported; empty means none
	limit    int64  // last reported; 0 means unlimited
	notified []byte // levels notified in this period under this limit, four bytes each
}

const usageVersion = 1

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
