package webhooks

import "sync/atomic"

// A workerPool makes attempts, each on a goroutine of its own while it lasts. Goroutines
// are used again: TLS needs a large stack, and growing one costs as much as the
// encryption.
type workerPool struct {
	run  func(*inflight)
	work chan *inflight // closed when there is no more
	idle atomic.Int64   // goroutines that wait for work
}

const maxIdleWorkers = 64 // more of them end

func newWorkerPool(run func(*inflight)) *workerPool {
	return &workerPool{run: run, work: make(chan *inflight)}
}

// start begins an attempt.
func (p *workerPool) start(f *inflight) {
	select {
	case p.work <- f:
	default:
		go p.serve(f)
	}
}

func (p *workerPool) serve(f *inflight) {
	for more := true; more; {
		p.run(f)
		if p.idle.Add(1) > maxIdleWorkers {
			p.idle.Add(-1)
			return
		}
		f, more = <-p.work
		p.idle.Add(-1)
	}
}
