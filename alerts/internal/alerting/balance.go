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
	Threshold uint64 // 0 means the policy's threshold
}

// A BalanceDecision is the result of a balance report.
type BalanceDecision struct {
	State      []byte
	Deferrable bool         // State may be lost in a crash, since the previous state leads to the same decisions
	Low        []LowBalance // the subscribers to notify, in order
}

// A LowBalance is a notification for a subscriber that the balance is below its threshold.
type LowBalance struct {
	ID                 string
	Balance, Threshold uint64
}

// ReportBalance evaluates a balance report. It notifies a subscriber once when the balance is below
// its threshold, and again only after the balance has recovered. due must be set if subscribers
// have changed since the state was stored. ReportBalance calls subscribers only if the report may
// affect a subscriber; the function must return all subscribers, ascending by ID.
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

// RepeatBalance evaluates the last report again, if there was one, because subscribers have
// changed.
func (p *Policy) RepeatBalance(state []byte, due bool, subscribers func() []Subscriber) BalanceDecision {
	s, _, known := parseBalance(state)
	if !known {
		return BalanceDecision{State: state}
	}
	return p.ReportBalance(state, due, s.balance, subscribers)
}

// reevaluate evaluates a balance for all subscribers. notified holds the IDs of subscribers that
// were notified already, ascending.
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

// plus returns a+b, or the maximum on overflow.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// A balanceState is the stored state of an account's balance reports.
type balanceState struct {
	balance uint64 // last reported

	// Under these settings, a report of a balance from low to high changes only the balance,
	// because no threshold lies in this range. The range extends by at most a 64th of the balance
	// in each direction. A deferrable report within it need not be written at once.
	low, high             uint64
	threshold, hysteresis uint64

	notified []string // IDs of notified subscribers whose balance has not recovered, ascending
}

const (
	balanceVersion = 1
	balanceHead    = 1 + 5*8 // size of the fields before notified
	balanceLag     = 64
)

// parseBalance decodes a state, except for the notified subscribers, which it returns encoded. It
// returns false if there is no readable state.
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

// parseTexts decodes all strings.
func parseTexts(state []byte) (texts []string) {
	for text, rest, ok := cutText(state); ok; text, rest, ok = cutText(rest) {
		texts = append(texts, string(text))
	}
	return texts
}
