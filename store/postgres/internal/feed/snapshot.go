// Package feed has what a node keeps of the change feed, by which it finds what other nodes changed: up to
// where it has read the feed (a [Snapshot]), and when to read it next (a [PollPolicy]).
//
// The feed is a table to which each transaction that changes something adds a row with its own number. A
// read returns the rows that the snapshot of the last read did not see, and the snapshot of its own. So
// each change is read once, however late its transaction commits, and none holds up another.
package feed

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Snapshot says which transactions a statement saw: those before Max, except those that ran.
type Snapshot struct {
	Number   uint64 // snapshots are numbered as they are read
	Min, Max int64
	Running  []int64
}

// ParseSnapshot parses a snapshot as PostgreSQL writes it, such as 10:20:10,14,15.
func ParseSnapshot(text string) (*Snapshot, error) {
	var list []int64
	for number := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ':' || r == ',' }) {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("postgres: snapshot %q: %w", text, err)
		}
		list = append(list, n)
	}
	if len(list) < 2 {
		return nil, fmt.Errorf("postgres: snapshot %q has no limits", text)
	}
	return &Snapshot{Min: list[0], Max: list[1], Running: list[2:]}, nil
}

// Sees reports whether the statement saw what the transaction did, if that was committed.
func (s *Snapshot) Sees(transaction int64) bool {
	return transaction < s.Max && !slices.Contains(s.Running, transaction)
}
