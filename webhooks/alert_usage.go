package webhooks

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"
)

// A usageAlert is what is kept of the reports of an account's use of bandwidth or
// transactions.
type usageAlert struct {
	period []byte // the latest that was reported; empty: none
	limit  int64  // as it was last reported; 0: unlimited
	told   []byte // the levels that were told of in that period under that limit, each in four bytes
}

const usageVersion = 1

// parseUsage reads the state of an alert. What cannot be read is as if it were not
// there.
func parseUsage(state []byte) usageAlert {
	if len(state) < 9 || state[0] != usageVersion {
		return usageAlert{}
	}
	period, told, ok := parseText(state[9:])
	if !ok || len(told)%4 != 0 {
		return usageAlert{}
	}
	return usageAlert{period, int64(binary.BigEndian.Uint64(state[1:])), told}
}

func (a *usageAlert) encode() []byte {
	state := append(make([]byte, 0, 16+len(a.period)+len(a.told)), usageVersion)
	state = binary.BigEndian.AppendUint64(state, uint64(a.limit))
	state = appendText(state, string(a.period))
	return append(state, a.told...)
}

func (a *usageAlert) toldOf(level uint32) bool {
	for told := range slices.Chunk(a.told, 4) {
		if binary.BigEndian.Uint32(told) == level {
			return true
		}
	}
	return false
}

// reportUsage takes in a report, and returns the levels that are to be told of,
// ascending.
func (p *alertPolicy) reportUsage(step *AlertStep, used, limit int64, period string, now func() time.Time) (tell []uint32, err error) {
	a := parseUsage(step.State)
	if period != string(a.period) {
		if err := checkPeriod(period, string(a.period), now()); err != nil {
			return nil, err
		}
		if isFarAhead(string(a.period), now()) {
			a = usageAlert{} // it was kept when that was not checked, or under a clock that was ahead
		}
	}
	changed := limit != a.limit
	switch { // periods are compared byte by byte
	case period < string(a.period):
		return nil, nil // a late report
	case period > string(a.period):
		a, changed = usageAlert{period: []byte(period)}, true
	case height(limit) > height(a.limit):
		a.told = nil
	}
	a.limit, a.told = limit, slices.Clip(a.told) // what is appended does not go into State
	for _, level := range p.levels {
		if limit > 0 && uint64(used) >= mark(limit, level) && !a.toldOf(level) {
			tell = append(tell, level)
			a.told = binary.BigEndian.AppendUint32(a.told, level)
		}
	}
	if changed || len(tell) > 0 {
		step.State = a.encode()
	}
	return tell, nil
}

// height makes a limit comparable: none is the highest.
func height(limit int64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return uint64(limit)
}

// mark returns the use at which the level of a limit is come to, rounded up.
func mark(limit int64, level uint32) uint64 {
	hi, lo := bits.Mul64(uint64(limit), uint64(level))
	lo, carry := bits.Add64(lo, reached-1, 0)
	quotient, _ := bits.Div64(hi+carry, lo, reached) // hi is less than 2¹⁹
	return quotient
}
