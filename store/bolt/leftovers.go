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

// next returns the first limit of the numbers that the webhook has left, or any if none
// is given.
func (l *leftovers) next(webhook string, limit int) (left *leftover, numbers []uint64) {
	l.mu.Lock()
	left = l.of[webhook]
	if webhook == "" {
		for _, left = range l.of {
			break
		}
	}
	l.mu.Unlock()
	if left == nil {
		return nil, nil
	}
	left.sort.Do(func() { slices.Sort(left.numbers) }) // no step waits for this
	l.mu.Lock()
	defer l.mu.Unlock()
	return left, left.numbers[:min(limit, len(left.numbers))]
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

// sweep removes limit of the rows that the webhook has left, or any if none is given,
// and reports whether there were some. If it fails they stay to be removed.
func (s *Store) sweep(ctx context.Context, webhook string, limit int) (swept bool, err error) {
	left, numbers := s.leftovers.next(webhook, limit)
	if len(numbers) == 0 {
		return false, nil
	}
	return true, s.writer.Run(ctx, func(b *batch) error { return s.removeRows(b, left, numbers) })
}

func (s *Store) removeRows(b *batch, left *leftover, numbers []uint64) error {
	if !s.leftovers.holds(left) {
		return nil // another call was faster: there may be a webhook of that id by now
	}
	b.maintaining = true
	if err := b.Flush(); err != nil {
		return err
	}
	for _, number := range numbers {
		if err := b.removePending(number); err != nil {
			return err
		}
	}
	b.AfterCommit(func() { s.leftovers.swept(left, numbers[len(numbers)-1]) })
	return nil
}
