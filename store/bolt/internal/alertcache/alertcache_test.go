package alertcache

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// The cache keeps all deferred alerts, and other alerts only while there is room.
func TestPut_Full_KeepsDeferredAlerts(t *testing.T) {
	t.Parallel()
	var c Cache
	row := func(kind string, i int) []byte { return fmt.Appendf(nil, "%s %d", kind, i) }
	for i := range maxAlerts / 2 {
		if !c.put(row("deferred", i), Alert{State: []byte("state"), deferred: true}) {
			t.Fatalf("there is no room for the deferred alert %d", i)
		}
	}
	if c.put(row("deferred", maxAlerts), Alert{deferred: true}) {
		t.Error("there is room for one more that is deferred")
	}
	for i := range 2 * maxAlerts {
		c.put(row("hard", i), Alert{})
		if len(c.known) > maxAlerts {
			t.Fatalf("%d are remembered", len(c.known))
		}
	}
	for i := range maxAlerts / 2 {
		if a := c.known[string(row("deferred", i))]; !a.deferred || string(a.State) != "state" {
			t.Fatalf("the deferred alert %d is forgotten", i)
		}
	}
	c.put(row("deferred", 1), Alert{})
	if !c.put(row("deferred", maxAlerts), Alert{deferred: true}) {
		t.Error("there is no room for a deferred one in the place of another")
	}
}

// The file has an alert with the state "old". Each case calls Answer for it.
func TestAnswer_Change_IsDeferredOnlyIfSafe(t *testing.T) {
	t.Parallel()
	row := []byte("row")
	set := func(state string, deferrable bool) func(*driver.AlertStep) error {
		return func(step *driver.AlertStep) error {
			step.State, step.Deferrable = []byte(state), deferrable
			return nil
		}
	}
	for name, test := range map[string]struct {
		before   func(c *Cache, o *Options)
		change   func(*driver.AlertStep) error
		answered bool
		err      error
	}{
		"no change":                 {nil, set("old", false), true, nil},
		"deferrable":                {nil, set("new", true), true, nil},
		"not deferrable":            {nil, set("new", false), false, nil},
		"read the webhooks":         {nil, func(step *driver.AlertStep) error { step.Webhooks(); return nil }, false, nil},
		"halted":                    {func(_ *Cache, o *Options) { o.Halted = func() bool { return true } }, set("new", true), false, nil},
		"under erasure":             {func(_ *Cache, o *Options) { o.Erasing = func(string) bool { return true } }, set("new", true), false, auth.ErrErasing},
		"a transaction writes it":   {func(c *Cache, _ *Options) { c.Writing(row) }, set("new", true), false, nil},
		"a transaction has written": {func(c *Cache, _ *Options) { c.Writing(row)() }, set("new", true), true, nil},
		"due":                       {func(c *Cache, _ *Options) { c.Set(row, Alert{Due: true}) }, set("old", true), false, nil},
		"closed":                    {func(c *Cache, _ *Options) { c.Close() }, set("old", true), false, store.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{
				Read:    func([]byte) (Alert, error) { return Alert{Stored: []byte("record"), State: []byte("old")}, nil },
				Erasing: func(string) bool { return false },
				Halted:  func() bool { return false },
			})
			if test.before != nil {
				test.before(c, &c.options)
			}
			answered, err := c.Answer("acct", row, test.change)
			if answered != test.answered || !errors.Is(err, test.err) {
				t.Errorf("Answer = %v, %v; want %v, %v", answered, err, test.answered, test.err)
			}
			var want []string
			if name == "deferrable" || name == "a transaction has written" {
				want = []string{"row"}
			}
			if diff := cmp.Diff(want, c.Deferred()); diff != "" {
				t.Errorf("deferred alerts (-want +got):\n%s", diff)
			}
		})
	}
}
