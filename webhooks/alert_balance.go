package webhooks

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// A balanceAlert is what is kept of the reports of an account's balance.
type balanceAlert struct {
	balance Amount // as it was last reported

	// Reports from low to high change nothing but the balance, under these
	// settings: no threshold lies between. The file may lag behind by a 64th of
	// the balance, which spares it most reports.
	low, high             Amount
	threshold, hysteresis Amount

	told []string // ids, ascending, of the webhooks that were told that the balance is low and for which it is not back
}

const (
	balanceVersion = 1
	balanceHead    = 1 + 5*8 // what precedes told
	balanceLag     = 64
)

// parseBalance reads the state of an alert, but what was told, which it returns as
// it is. It reports false if there is none, or none that can be read.
func parseBalance(state []byte) (a balanceAlert, told []byte, ok bool) {
	if len(state) < balanceHead || state[0] != balanceVersion {
		return a, nil, false
	}
	for i, field := range []*Amount{&a.balance, &a.low, &a.high, &a.threshold, &a.hysteresis} {
		*field = Amount(binary.BigEndian.Uint64(state[1+8*i:]))
	}
	return a, state[balanceHead:], true
}

func (a *balanceAlert) encode() []byte {
	state := append(make([]byte, 0, balanceHead+32*len(a.told)), balanceVersion)
	for _, field := range []Amount{a.balance, a.low, a.high, a.threshold, a.hysteresis} {
		state = binary.BigEndian.AppendUint64(state, uint64(field))
	}
	for _, id := range a.told {
		state = appendText(state, id)
	}
	return state
}

// A lowBalance is told to one webhook.
type lowBalance struct {
	webhook string
	data    BalanceLow
}

// reportBalance takes in a report, and returns what is to be told.
func (p *alertPolicy) reportBalance(step *AlertStep, balance Amount) []lowBalance {
	a, told, known := parseBalance(step.State)
	if !known || step.Due || a.threshold != p.threshold || a.hysteresis != p.hysteresis || balance < a.low || balance > a.high {
		return p.review(step, balance, parseTexts(told))
	}
	if balance != a.balance {
		step.State, step.Deferrable = slices.Clone(step.State), true
		binary.BigEndian.PutUint64(step.State[1:], uint64(balance))
	}
	return nil
}

// reviewBalance does what reportBalance of the last balance does, if one was
// reported.
func (p *alertPolicy) reviewBalance(step *AlertStep) []lowBalance {
	a, _, known := parseBalance(step.State)
	if !known {
		return nil
	}
	return p.reportBalance(step, a.balance)
}

// review looks at all webhooks, of which those were told already.
func (p *alertPolicy) review(step *AlertStep, balance Amount, told []string) (tell []lowBalance) {
	lag := balance / balanceLag
	a := balanceAlert{
		balance: balance, low: balance - lag, high: plus(balance, lag),
		threshold: p.threshold, hysteresis: p.hysteresis,
	}
	for _, w := range step.Webhooks() {
		threshold := cmp.Or(w.BalanceThreshold, p.threshold)
		if threshold == 0 || !slices.Contains(w.Events, TypeBalanceLow) {
			continue
		}
		back := plus(threshold, p.hysteresis)
		_, wasTold := slices.BinarySearch(told, w.ID)
		if !wasTold && balance >= threshold || balance >= back {
			a.low = max(a.low, threshold)
			continue
		}
		a.high = min(a.high, back-1)
		a.told = append(a.told, w.ID)
		if !wasTold {
			tell = append(tell, lowBalance{w.ID, BalanceLow{Balance: balance, Threshold: threshold}})
		}
	}
	step.State = a.encode()
	return tell
}

// plus adds, and stops at the greatest amount there is.
func plus(a, b Amount) Amount {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// appendText appends a text that parseTexts reads.
func appendText(state []byte, text string) []byte {
	return append(binary.AppendUvarint(state, uint64(len(text))), text...)
}

// parseText reads a text; it reports false if there is none.
func parseText(state []byte) (text, rest []byte, ok bool) {
	n, size := binary.Uvarint(state)
	if size <= 0 || n > uint64(len(state)-size) {
		return nil, nil, false
	}
	return state[size : size+int(n)], state[size+int(n):], true
}

// parseTexts reads all texts that there are.
func parseTexts(state []byte) (texts []string) {
	for text, rest, ok := parseText(state); ok; text, rest, ok = parseText(rest) {
		texts = append(texts, string(text))
	}
	return texts
}
