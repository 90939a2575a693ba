package webhooks

import "time"

// waiting are the flights that have ended and are leased until they are settled.
// Their leases must not run out meanwhile, however long the store fails: what was
// sent would be sent again. The zero waiting is none.
type waiting struct {
	flights []*flight // in no order
	fresh   []uint64  // tokens of those that no claim has told the store of yet
	lasting []uint64  // tokens of those that wait for long, told again in each claim
	looked  time.Time // when these were last looked for
}

// lastingAfter is how long a flight waits before it is told of again; a part of the
// lease if that is short.
const lastingAfter = time.Second

func (w *waiting) add(f *flight, now time.Time) {
	f.ended, f.waits = now, len(w.flights)
	w.flights = append(w.flights, f)
	w.fresh = append(w.fresh, f.settlement.Task.Token)
}

func (w *waiting) remove(f *flight) {
	last := len(w.flights) - 1
	w.flights[f.waits] = w.flights[last]
	w.flights[f.waits].waits = f.waits
	w.flights[last] = nil
	w.flights = w.flights[:last]
}

// landed returns the tokens for [Claim.Finished], of all that wait if the store fails:
// claims are rare then.
func (w *waiting) landed(now time.Time, lease time.Duration, all bool) []uint64 {
	pause := min(lastingAfter, lease/8)
	if all || now.Sub(w.looked) >= pause {
		w.looked, w.lasting = now, w.lasting[:0]
		for _, f := range w.flights {
			if all || now.Sub(f.ended) >= pause {
				w.lasting = append(w.lasting, f.settlement.Task.Token)
			}
		}
	}
	return append(w.fresh, w.lasting...)
}

// told notes that a claim has told the store of those that were new.
func (w *waiting) told() { w.fresh = w.fresh[:0] }
