package observing

import (
	"log/slog"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
)

// Changes reports changes to an Observer.
type Changes struct {
	changed func(audit.Entry) // may be nil
	*Queue
}

// NewChanges returns the Changes of observer.
func NewChanges(observer observe.Observer, logger *slog.Logger) Changes {
	return Changes{observer.Changed, NewQueue(logger, observer.Lost)}
}

// Changed reports a stored audit entry. It ignores the zero Entry.
func (c *Changes) Changed(n *audit.Entry) {
	if c.changed != nil {
		c.enqueue(n)
	}
}

func (c *Changes) enqueue(n *audit.Entry) {
	if entry := *n; !n.IsZero() {
		c.Add(func() { c.changed(entry) })
	}
}
