package bolt

import (
	"log/slog"
	"time"

	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
)

// An observer tells an Observer of commits.
type observer struct {
	told  func(observe.Commit)
	queue *observing.Queue
}

// Observe has o told of each commit of the file: see [observe.Observer.Committed]. The logger
// is told of its failures; nil is [slog.Default]. storageapi.NewHandler does so with the file that it opens.
func Observe(o observe.Observer, logger *slog.Logger) Option {
	if o.Committed == nil {
		return func(*Store) {}
	}
	if logger == nil {
		logger = slog.Default()
	}
	return func(s *Store) { s.observer = &observer{o.Committed, observing.NewQueue(logger, o.Lost)} }
}

func (o *observer) committed(steps int, took time.Duration, err error) {
	c := observe.Commit{Steps: steps, Duration: took, Err: err}
	o.queue.Add(func() { o.told(c) })
}
