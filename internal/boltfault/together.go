package boltfault

import (
	"context"
	"sync"
)

// Together runs steps in one transaction, in their order, and returns the error of each. run is the
// Run of a groupcommit.Writer. Together first occupies the writer with an empty transaction until
// all steps are queued.
func Together[B any](ctx context.Context, run func(context.Context, func(B) error) error, steps ...func(B) error) []error {
	begun, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = run(ctx, func(B) error { close(begun); <-release; return nil }) // fails if the steps fail
	}()
	select {
	case <-begun:
	case <-ended:
	}
	errs := make([]error, len(steps))
	var running sync.WaitGroup
	for i, step := range steps {
		queued := newQueuedContext(ctx)
		running.Go(func() {
			defer queued.report()
			errs[i] = run(queued, step)
		})
		<-queued.reported
	}
	close(release)
	running.Wait()
	<-ended
	return errs
}

// A queuedContext reports when its step is in the queue: Run calls Done only after queueing the
// step.
type queuedContext struct {
	context.Context
	reported chan struct{}
	report   func()
}

func newQueuedContext(ctx context.Context) *queuedContext {
	reported := make(chan struct{})
	return &queuedContext{Context: ctx, reported: reported, report: sync.OnceFunc(func() { close(reported) })}
}

func (c *queuedContext) Done() <-chan struct{} {
	c.report()
	return c.Context.Done()
}
