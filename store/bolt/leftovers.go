package bolt

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// leftovers are the numbers of deliveries that were pending for webhooks when those were
// deleted, and whose rows are still there.
//
// Such deliveries end with the commit that deletes their webhook: readers see that
// the webhook is gone, the queue drops them, and Open does not load them. Their rows are
// removed later, in steps, because those of a long backlog would keep other steps waiting.
type leftovers struct {
	mu sync.Mutex
	of map[string]*leftover // by webhook
}

type leftover struct {
	webhook string
	sort    sync.Once
	numbers []uint64
}

// errLeftovers is returned by a step that creates a webhook with the id of a deleted one
// whose rows are still there: they would be pending for the new one.
var errLeftovers = errors.New("rows of a deleted webhook of that id are still there")

// add adds the numbers that a webhook leaves. It has left none before, or they are gone:
// otherwise there would be no webhook of that id.
func (l *leftovers) add(webhook string, numbers []uint64) {
	if len(numbers) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[string]*leftover)
	}
	l.of[webhook] = &leftover{webhook: webhook, numbers: numbers}
}

func (l *leftovers) has(webhook string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[webhook] != nil
}

// A leaving is a part of what a webhook has left: numbers, ascending from the first.
type leaving struct {
	of      *leftover
	numbers []uint64
}

// next returns up to limit of the numbers that the webhook has left, or that any have if none is given.
func (l *leftovers) next(webhook string, limit int) (list []leaving) {
	var chosen []*leftover
	l.mu.Lock()
	if webhook != "" {
		if left := l.of[webhook]; left != nil {
			chosen = append(chosen, left)
		}
	} else {
		found := 0
		for _, left := range l.of {
			if found >= limit {
				break
			}
			chosen = append(chosen, left)
			found += len(left.numbers)
		}
	}
	l.mu.Unlock()
	for _, left := range chosen {
		left.sort.Do(func() { slices.Sort(left.numbers) }) // no step waits for this
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, left := range chosen {
		if n := min(limit, len(left.numbers)); n > 0 {
			list = append(list, leaving{left, left.numbers[:n]})
			limit -= n
		}
	}
	return list
}

// holds reports whether those are still there.
func (l *leftovers) holds(left *leftover) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[left.webhook] == left
}

// swept forgets the numbers up to that one: their rows are gone.
func (l *leftovers) swept(left *leftover, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(left.numbers) > 0 && left.numbers[0] <= last {
		left.numbers = left.numbers[1:]
	}
	if len(left.numbers) == 0 && l.of[left.webhook] == left {
		delete(l.of, left.webhook)
	}
}

// sweep removes limit of the rows that the webhook has left, and reports whether there were some. If it fails
// they stay to be removed.
func (s *Store) sweep(ctx context.Context, webhook string, limit int) (swept bool, err error) {
	list := s.leftovers.next(webhook, limit)
	if len(list) == 0 {
		return false, nil
	}
	return true, s.writer.Run(ctx, func(b *batch) error {
		_, err := s.removeRows(b, list)
		return err
	})
}

// removeRows removes rows that webhooks have left, and returns how many.
func (s *Store) removeRows(b *batch, list []leaving) (removed int, err error) {
	for _, left := range list {
		if !s.leftovers.holds(left.of) {
			continue // another call was faster: there may be a webhook of that id by now
		}
		b.maintaining = true
		if err := b.Flush(); err != nil {
			return removed, err
		}
		for _, number := range left.numbers {
			if err := b.removePending(number); err != nil {
				return removed, err
			}
		}
		removed += len(left.numbers)
		b.AfterCommit(func() { s.leftovers.swept(left.of, left.numbers[len(left.numbers)-1]) })
	}
	return removed, nil
}
