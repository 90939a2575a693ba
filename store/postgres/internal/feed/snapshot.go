// Package feed tracks how a node reads the change feed, in which it finds the changes of other
// nodes. A [Snapshot] says how far the node has read, and a [PollPolicy] when to read next.
//
// The feed is a table to which each changing transaction adds a row with its own number. A read
// returns the rows that the previous read's snapshot did not see, and its own snapshot. So each
// change is read once, even if its transaction commits late, and no transaction holds up another.
package feed

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Snapshot is the set of transactions that a statement saw: all before Max except Running.
type Snapshot struct {
	Number   uint64 // snapshots are numbered as they are read
	Min, Max int64
	Running  []int64
}

// ParseSnapshot parses a snapshot in PostgreSQL's format, such as 10:20:10,14,15.
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
		return nil, fmt.Errorf("postgres: malformed snapshot %q: a bound is missing", text)
	}
	return &Snapshot{Min: list[0], Max: list[1], Running: list[2:]}, nil
}

// Sees reports whether the statement saw the changes of the transaction, provided that the
// transaction committed.
func (s *Snapshot) Sees(transaction int64) bool {
	return transaction < s.Max && !slices.Contains(s.Running, transaction)
}
