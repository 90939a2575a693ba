package webhooks

import (
	"container/heap"
	"time"
)

const (
	minRest  = 25 * time.Millisecond // pauses of slow webhooks for which nothing is due:
	restEach = 20 * time.Microsecond // this for each webhook if that is longer
)

// A line is the webhooks of one condition that may have an attempt more, by when
// their turn is.
type line []*track

func (l *line) put(w *track) {
	switch {
	case w.place >= 0:
		heap.Fix(l, w.place)
	case w.place == nowhere:
		heap.Push(l, w)
	}
}

func (l *line) take(w *track) {
	if w.place >= 0 {
		heap.Remove(l, w.place)
	}
	w.place = nowhere
}

// The methods of [heap.Interface].

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].turn.Before(l[j].turn) }

func (l line) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

func (l *line) Push(x any) {
	w := x.(*track)
	w.place = len(*l)
	*l = append(*l, w)
}

func (l *line) Pop() any {
	s := *l
	w := s[len(s)-1]
	s[len(s)-1] = nil
	*l = s[:len(s)-1]
	w.place = nowhere
	return w
}

// offer chooses webhooks that are not fit and may have attempts more, up to limit in
// all, and returns how many each may have in flight then, and how many attempts
// more that is. What comes of the claim must be told to answered.
func (p *pacer) offer(now time.Time, limit int) (caps map[string]int, turns int) {
	clear(p.offers)
	clear(p.chosen)
	p.chosen = p.chosen[:0]
	failing, room := p.hopeless(), min(limit, p.spare())
	give := func(w *track) {
		p.offers[w.id]++
		w.given++
		w.account.offered++
		turns++
		if w.condition >= ailing {
			failing--
		}
	}
	for turns < room {
		w := p.next(failing)
		if w == nil || w.turn.After(now) {
			break
		}
		p.lines[w.condition].take(w)
		if w.account.spare() <= 0 {
			w.place = parked
			w.account.parked = append(w.account.parked, w)
			continue
		}
		p.chosen = append(p.chosen, w)
		w.had = len(w.flights)
		p.offers[w.id] = w.had
		give(w)
	}
	for more := true; more; { // what room there is still, to each one more
		more = false
		for _, w := range p.chosen {
			if turns < room && p.offers[w.id] < w.limit() && w.account.spare() > 0 && (w.condition < ailing || failing > 0) {
				give(w)
				more = true
			}
		}
	}
	return p.offers, turns
}

// hopeless returns how many attempts more ailing and down webhooks may have: an
// eighth of the slots, so that there is room for those that are slow, but succeed.
func (p *pacer) hopeless() int { return max(1, p.slots/8) - p.failing }

// next returns the webhook whose turn is next, or nil; failing tells how many more
// may be ailing or down.
func (p *pacer) next(failing int) *track {
	var first *track
	for c, line := range p.lines {
		if len(line) > 0 && (condition(c) < ailing || failing > 0) && (first == nil || line[0].turn.Before(first.turn)) {
			first = line[0]
		}
	}
	return first
}

// answered ends an offer whose claim has been answered, and begun what it got.
func (p *pacer) answered(now time.Time, err error) {
	if !p.beat.After(now) {
		p.beat = now.Add(max(minRest, time.Duration(len(p.tracks))*restEach))
	}
	for _, w := range p.chosen {
		got := len(w.flights) - w.had
		w.account.offered -= w.given
		w.given = 0
		p.unpark(w.account)
		switch {
		case err != nil:
		case got > 0:
			w.turn = now
		case w.condition == down && len(w.flights) > 0: // somebody asked for it just now
		case w.isIdle() && now.Sub(w.active) >= trackedFor:
			p.forget(w)
			continue
		case w.condition == down && w.hopeful: // nothing was due
			p.halfOpen(w, now)
		case w.condition == down:
			w.rest(now)
		default:
			w.turn = p.beat // all at once: it is one claim
		}
		p.arrange(w)
	}
}

// unpark puts webhooks of the account back in line, as many as it has slots to
// spare.
func (p *pacer) unpark(a *accountTrack) {
	for n := a.spare(); n > 0 && len(a.parked) > 0; {
		w := a.parked[0]
		a.parked[0] = nil
		a.parked = a.parked[1:]
		if w.place == parked {
			w.place = nowhere
			p.arrange(w)
			n--
		}
	}
}
