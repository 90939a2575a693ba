// Package alertcache is a write-behind buffer for alerts: a report that changes nothing needs no
// transaction, and a change that may be lost in a crash is written to the file later. An alert with
// such a change is called deferred.
package alertcache

import (
	"bytes"
	"strings"
	"sync"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// maxAlerts is the maximum number of alerts in memory, at about 300 bytes each. At most half of
// them may be deferred; beyond that, changes are written at once.
const maxAlerts = 131_072

// Options connect the cache with the rest of the store.
type Options struct {
	Read    func(row []byte) (Alert, error) // reads an alert from the file
	Erasing func(account string) bool       // reports whether the account is being erased
	Halted  func() bool                     // reports whether the file cannot be written
}

// A Cache caches alerts by row, the key of the alert in schema.Alerts.
type Cache struct {
	options Options

	mu       sync.Mutex
	known    map[string]Alert // by row
	writing  map[string]int   // number of transactions about to write the row; unless 0, changes are not deferred
	deferred int              // number of deferred alerts
	closed   bool
}

// An Alert is an alert in the cache.
type Alert struct {
	Stored   []byte // the record in the file; nil if there is none
	State    []byte // current state; decoded from Stored unless the alert is deferred
	Due      bool
	deferred bool
}

// New returns an empty cache.
func New(options Options) *Cache { return &Cache{options: options} }

// Answer applies a change that needs no transaction. If the change needs a transaction, Answer has
// no effect and returns false.
func (c *Cache) Answer(account string, row []byte, change func(*driver.AlertStep) error) (answered bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, store.ErrClosed
	}
	if c.options.Erasing(account) {
		return false, auth.ErrErasing
	}
	a, known := c.known[string(row)]
	if !known {
		if a, err = c.options.Read(row); err != nil {
			return false, err
		}
		c.put(row, a)
	}
	if a.Due {
		return false, nil
	}
	looked := false
	step := driver.AlertStep{State: a.State, Webhooks: func() []driver.Webhook { looked = true; return nil }}
	err = change(&step)
	switch {
	case looked || len(step.Events) > 0:
		return false, nil
	case err != nil:
		return false, err
	case bytes.Equal(step.State, a.State):
		return true, nil
	case !step.Deferrable || a.Stored == nil || c.writing[string(row)] > 0 || c.options.Halted():
		return false, nil
	}
	a.State, a.deferred = bytes.Clone(step.State), true
	return c.put(row, a), nil
}

// Close returns the rows of the deferred alerts. From then on Answer returns [store.ErrClosed], so
// no more alerts can be deferred.
func (c *Cache) Close() (rows []string) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return c.Deferred()
}

// Writing announces that a transaction will write the row. The caller must call the returned
// function when the transaction has ended.
func (c *Cache) Writing(row []byte) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing == nil {
		c.writing = make(map[string]int)
	}
	c.writing[string(row)]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.writing[string(row)]--; c.writing[string(row)] == 0 {
			delete(c.writing, string(row))
		}
	}
}

// Latest returns the current state of the alert: the deferred state if there is one, otherwise the
// stored state. file is the alert as stored.
func (c *Cache) Latest(row []byte, file Alert) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.known[string(row)]; a.deferred && bytes.Equal(a.Stored, file.Stored) {
		return a.State
	}
	return file.State
}

// Set caches an alert that has been written to the file.
func (c *Cache) Set(row []byte, a Alert) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(row, a)
}

// Deferred returns the keys of the deferred alerts.
func (c *Cache) Deferred() (rows []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deferred == 0 {
		return nil
	}
	for row, a := range c.known {
		if a.deferred {
			rows = append(rows, row)
		}
	}
	return rows
}

// MarkDue marks a cached alert as due.
func (c *Cache) MarkDue(row []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, known := c.known[string(row)]; known {
		a.Due = true
		c.known[string(row)] = a
	}
}

// put caches an alert, and evicts another if the cache is full. Deferred alerts are never evicted.
// If the alert is deferred and too many other alerts are already deferred, put does nothing and
// returns false.
func (c *Cache) put(row []byte, a Alert) (done bool) {
	old, known := c.known[string(row)]
	switch {
	case a.deferred && !old.deferred && c.deferred >= maxAlerts/2:
		return false
	case a.deferred && !old.deferred:
		c.deferred++
	case !a.deferred && old.deferred:
		c.deferred--
	}
	if c.known == nil {
		c.known = make(map[string]Alert)
	}
	if !known && len(c.known) >= maxAlerts {
		c.evict()
	}
	c.known[string(row)] = a
	return true
}

// evict removes an arbitrary alert that is not deferred.
func (c *Cache) evict() {
	for row, a := range c.known {
		if !a.deferred {
			delete(c.known, row)
			return
		}
	}
}

// Forget empties the cache.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.deferred = nil, 0
}

// ForgetAccount removes the account's alerts from the cache, including deferred ones.
func (c *Cache) ForgetAccount(account string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := string(record.Prefixed(account, ""))
	for row, a := range c.known {
		if !strings.HasPrefix(row, prefix) {
			continue
		}
		if a.deferred {
			c.deferred--
		}
		delete(c.known, row)
	}
}
