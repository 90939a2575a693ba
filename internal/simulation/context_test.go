package simulation_test

import (
	"context"
	"sync"
	"sync/atomic"
)

// dying is a context that ends when it is checked for the n-th time. So it can end between any two
// steps of the code that uses it.
type dying struct {
	context.Context
	left atomic.Int64
	done chan struct{}
	once sync.Once
}

// newDying returns a context that ends after the given number of checks (looks), or when end is
// called.
func newDying(parent context.Context, looks int) (ctx *dying, end func()) {
	d := &dying{Context: parent, done: make(chan struct{})}
	d.left.Store(int64(looks))
	stop := context.AfterFunc(parent, d.end)
	return d, func() { stop(); d.end() }
}

func (d *dying) end() { d.once.Do(func() { close(d.done) }) }

func (d *dying) Done() <-chan struct{} { return d.done }

func (d *dying) Err() error {
	if d.left.Add(-1) < 0 {
		d.end()
	}
	select {
	case <-d.done:
		if err := d.Context.Err(); err != nil {
			return err
		}
		return context.Canceled
	default:
		return d.Context.Err()
	}
}
