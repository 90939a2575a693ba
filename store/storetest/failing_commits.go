package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// A FailingStore is a store whose commits can be made to fail.
type FailingStore struct {
	store.Store

	// Fail makes some or all commits fail from now on.
	Fail func()

	// Mend lets commits succeed again and returns a working store, which Mend reopens if it was
	// closed or is read-only.
	Mend func() store.Store
}

// RunFailing tests steps whose commits fail. The store must not report an undone step as done, nor
// a done step as undone. The suite closes the stores returned by open and Mend.
func RunFailing(t *testing.T, open func(t *testing.T) FailingStore) {
	t.Helper()
	for name, meanwhile := range map[string]func(*tester){
		"steps whose commits fail":                           func(*tester) {},
		"steps whose commits fail while the store is closed": func(t *tester) { _ = t.store.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			failing := open(t)
			before := &tester{t, failing.Store}
			list := before.cuts(8)
			failing.Fail()
			before.cutShort(list, 50*time.Millisecond, func() { meanwhile(before) })
			mended := failing.Mend()
			defer closeStore(t, mended)
			if mended != failing.Store {
				_ = failing.Close() // may return an error because the data cannot be saved
				for method, err := range everyMethod(t.Context(), failing.Store, Task{Webhook: &driver.Webhook{}}) {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("%s = %v after Close, want ErrClosed", method, err)
					}
				}
			}
			after := &tester{t, mended}
			done, not, unknown := after.check(list)
			t.Logf("%d steps done, %d not, %d unknown", done, not, unknown)
			after.again(list)
		})
	}
	failingReports(t, open)
}

// again repeats the steps that were not done.
func (t *tester) again(list []*cut) {
	t.Helper()
	t.claim(1) // starts Deliver, because only results of the delivering process count
	for _, c := range list {
		if c.done(t) {
			continue
		}
		if err := c.do(t.Context(), t.store); err != nil {
			t.Errorf("%s again = %v", c.name, err)
		} else if !c.done(t) {
			t.Errorf("%s repeated, but not done", c.name)
		}
	}
}
