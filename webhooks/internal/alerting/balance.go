package alerting

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// A Subscriber is a webhook that subscribes to low balances.
type Subscriber struct {
	ID        string
	Threshold uint64 // 0: that of the policy
}

// A BalanceDecision is what follows from a report of a balance.
type BalanceDecision struct {
	State      []byte
	Deferrable bool         // the report before, which State replaces, serves as well after a crash
	Low        []LowBalance // the subscribers to notify, in their order
}

// A LowBalance is a subscriber whose threshold the balance has fallen below.
type LowBalance struct {
	ID                 string
	Balance, Threshold uint64
}

// ReportBalance decides on a report. Each subscriber is notified once when the balance is
// below its threshold, and again only after the balance has recovered. due says that
// subscribers have changed since the state was stored. subscribers returns all of them,
// ascending by id; it is called only if the report may change something for one.
func (p *Policy) ReportBalance(state []byte, due bool, balance uint64, subscribers func() []Subscriber) BalanceDecision {
	s, notified, known := parseBalance(state)
	switch {
	case !known || due || s.threshold != p.threshold || s.hysteresis != p.hysteresis || balance < s.low || balance > s.high:
		return p.reevaluate(balance, parseTexts(notified), subscribers())
	case balance != s.balance:
		state = slices.Clone(state)
		binary.BigEndian.PutUint64(state[1:], balance)
		return BalanceDecision{State: state, Deferrable: true}
	}
	return BalanceDecision{State: state}
}

// RepeatBalance decides on the last report once more, if there was one: subscribers may
// have changed.
func (p *Policy) RepeatBalance(state []byte, due bool, subscribers func() []Subscriber) BalanceDecision {
	s, _, known := parseBalance(state)
	if !known {
		return BalanceDecision{State: state}
	}
	return p.ReportBalance(state, due, s.balance, subscribers)
}

// reevaluate looks at all subscribers; notified are the ids of those that were notified
// already, ascending.
func (p *Policy) reevaluate(balance uint64, notified []string, subscribers []Subscriber) (d BalanceDecision) {
	lag := balance / balanceLag
	s := balanceState{
		balance: balance, low: balance - lag, high: plus(balance, lag),
		threshold: p.threshold, hysteresis: p.hysteresis,
	}
	for _, subscriber := range subscribers {
		threshold := cmp.Or(subscriber.Threshold, p.threshold)
		if threshold == 0 {
			continue
		}
		recovered := plus(threshold, p.hysteresis)
		_, wasNotified := slices.BinarySearch(notified, subscriber.ID)
		if !wasNotified && balance >= threshold || balance >= recovered {
			s.low = max(s.low, threshold)
			continue
		}
		s.high = min(s.high, recovered-1)
		s.notified = append(s.notified, subscriber.ID)
		if !wasNotified {
			d.Low = append(d.Low, LowBalance{ID: subscriber.ID, Balance: balance, Threshold: threshold})
		}
	}
	d.State = s.encode()
	return d
}

// plus adds, and stops at the greatest amount there is.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// A balanceState is what is kept of the reports of an account's balance.
type balanceState struct {
	balance uint64 // as it was last reported

	// Reports from low to high change nothing but the balance, under these
	// settings: no threshold lies between. The file may lag behind by a 64th of
	// the balance, which spares it most reports.
	low, high             uint64
	threshold, hysteresis uint64

	notified []string // ids, ascending, of the subscribers that were notified and for which the balance has not recovered
}

const (
	balanceVersion = 1
	balanceHead    = 1 + 5*8 // what precedes notified
	balanceLag     = 64
)

// parseBalance reads a state. It returns the ids of the subscribers that were notified as
// they are encoded. It reports false if there is no state that can be read.
func parseBalance(state []byte) (s balanceState, notified []byte, ok bool) {
	if len(state) < balanceHead || state[0] != balanceVersion {
		return s, nil, false
	}
	for i, field := range []*uint64{&s.balance, &s.low, &s.high, &s.threshold, &s.hysteresis} {
		*field = binary.BigEndian.Uint64(state[1+8*i:])
	}
	return s, state[balanceHead:], true
}

func (s *balanceState) encode() []byte {
	state := append(make([]byte, 0, balanceHead+32*len(s.notified)), balanceVersion)
	for _, field := range []uint64{s.balance, s.low, s.high, s.threshold, s.hysteresis} {
		state = binary.BigEndian.AppendUint64(state, field)
	}
	for _, id := range s.notified {
		state = appendText(state, id)
	}
	return state
}

// parseTexts reads all texts that there are.
func parseTexts(state []byte) (texts []string) {
	for text, rest, ok := cutText(state); ok; text, rest, ok = cutText(rest) {
		texts = append(texts, string(text))
	}
	return texts
}
