package observing

import (
	"log/slog"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/observe"
)

// Changes reports changes to an Observer.
type Changes struct {
	changed func(notices.Notice) // may be nil
	*Queue
}

// NewChanges returns the Changes of observer.
func NewChanges(observer observe.Observer, logger *slog.Logger) Changes {
	return Changes{observer.Changed, NewQueue(logger, observer.Lost)}
}

// Changed reports a stored notice. It ignores the zero Notice.
func (c *Changes) Changed(n *notices.Notice) {
	if c.changed != nil {
		c.enqueue(n)
	}
}

func (c *Changes) enqueue(n *notices.Notice) {
	if notice := *n; !n.IsZero() {
		c.Add(func() { c.changed(notice) })
	}
}
