package observing

import (
	"log/slog"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/observe"
)

// Changes tell an Observer of changes.
type Changes struct {
	changed func(notices.Notice) // nil: none
	*Queue
}

// NewChanges returns the Changes that observer is told of.
func NewChanges(observer observe.Observer, logger *slog.Logger) Changes {
	return Changes{observer.Changed, NewQueue(logger, observer.Lost)}
}

// Changed tells of a notice that was stored, and of nothing if it is zero.
func (c *Changes) Changed(n *notices.Notice) {
	if c.changed != nil {
		c.tell(n)
	}
}

func (c *Changes) tell(n *notices.Notice) {
	if told := *n; !n.IsZero() {
		c.Add(func() { c.changed(told) })
	}
}
