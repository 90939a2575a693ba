package memory

import (
	"iter"
	"slices"
	"strings"
)

// A ref identifies a record by its account and its ID.
type ref struct{ account, id string }

// A table holds the records of one kind by account, each account's records in ascending order of
// IDs. A new ID usually sorts last, so adding a record rarely moves others.
type table[T any] map[string][]row[T]

type row[T any] struct {
	id     string
	record *T
}

// search returns the index of id among the account's rows, and whether it exists.
func (t table[T]) search(account, id string) (int, bool) {
	return slices.BinarySearchFunc(t[account], id, func(r row[T], id string) int {
		return strings.Compare(r.id, id)
	})
}

// find returns a record, or nil.
func (t table[T]) find(account, id string) *T {
	i, ok := t.search(account, id)
	if !ok {
		return nil
	}
	return t[account][i].record
}

// insert adds a record whose ID must be new to the account.
func (t table[T]) insert(account, id string, record *T) {
	i, _ := t.search(account, id)
	t[account] = slices.Insert(t[account], i, row[T]{id, record})
}

// replace replaces an existing record.
func (t table[T]) replace(account, id string, record *T) {
	i, _ := t.search(account, id)
	t[account][i].record = record
}

// remove removes an existing record.
func (t table[T]) remove(account, id string) {
	i, _ := t.search(account, id)
	t[account] = slices.Delete(t[account], i, i+1)
	if len(t[account]) == 0 {
		delete(t, account)
	}
}

// page returns at most limit records of the account by descending ID. If after is not empty, the
// page begins after that ID.
func (t table[T]) page(account, after string, limit int) iter.Seq[*T] {
	rows := t[account]
	if after != "" {
		end, _ := t.search(account, after)
		rows = rows[:end]
	}
	rows = rows[max(0, len(rows)-limit):]
	return func(yield func(*T) bool) {
		for _, r := range slices.Backward(rows) {
			if !yield(r.record) {
				return
			}
		}
	}
}
