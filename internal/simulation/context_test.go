package simulation_test

import (
	"context"
	"sync"
	"sync/atomic"
)

// A dying context ends when somebody looks at it for the n-th time: between any two
// steps of whatever it was given to.
type dying struct {
	context.Context
	left atomic.Int64
	done chan struct{}
	once sync.Once
}

// newDying returns a context that ends at the look after that many, or when end is
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
