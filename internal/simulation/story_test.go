package simulation_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A story records the events of a seed in order.
type story struct {
	mu       sync.Mutex
	lines    []line
	breaches []breach
}

// A line is one event. about names the webhooks, events, keys and accounts that it concerns. A line
// with an empty about concerns all of them.
type line struct {
	at    time.Duration
	actor string
	text  string
	about []string
}

// A breach is a rule that was broken.
type breach struct {
	line
	rule string
}

const (
	maxBreaches = 5  // printed per seed
	maxLines    = 60 // printed per breach
)

func (w *world) tell(actor string, about []string, format string, args ...any) {
	l := line{w.now(), actor, fmt.Sprintf(format, args...), about}
	w.story.mu.Lock()
	defer w.story.mu.Unlock()
	w.story.lines = append(w.story.lines, l)
}

// breach records that a rule was broken.
func (w *world) breach(rule string, about []string, format string, args ...any) {
	if known[rule] != "" {
		return
	}
	l := line{w.now(), "BREACH", rule + ": " + fmt.Sprintf(format, args...), about}
	w.story.mu.Lock()
	defer w.story.mu.Unlock()
	w.story.lines = append(w.story.lines, l)
	w.story.breaches = append(w.story.breaches, breach{l, rule})
}

// known lists rules that are broken by faults under repair. It should be empty.
var known = map[string]string{}

func (w *world) broken() bool {
	w.story.mu.Lock()
	defer w.story.mu.Unlock()
	return len(w.story.breaches) > 0
}

// String returns each breach, with the preceding lines that concern the same names.
func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, breach := range s.breaches {
		if i == maxBreaches {
			fmt.Fprintf(&b, "… and %d more\n", len(s.breaches)-i)
			break
		}
		fmt.Fprintf(&b, "%s\n", breach.text)
		lines := s.concerning(breach)
		if n := len(lines) - maxLines; n > 0 {
			fmt.Fprintf(&b, "    … %d lines before\n", n)
			lines = lines[n:]
		}
		for _, l := range lines {
			fmt.Fprintf(&b, "    %s  %-10s %s\n", clock(l.at), l.actor, l.text)
		}
	}
	return b.String()
}

func (s *story) concerning(b breach) (lines []line) {
	for _, l := range s.lines {
		if len(l.about) == 0 || slices.ContainsFunc(l.about, func(name string) bool { return slices.Contains(b.about, name) }) {
			if lines = append(lines, l); l.text == b.text && l.at == b.at {
				return lines
			}
		}
	}
	return lines
}

// clock formats a time of the simulated day as hours, minutes and seconds.
func clock(at time.Duration) string {
	at = at.Truncate(time.Millisecond)
	return fmt.Sprintf("%02d:%02d:%06.3f", at/time.Hour, at/time.Minute%60, (at % time.Minute).Seconds())
}
