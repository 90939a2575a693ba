package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// A FailingStore is a store whose commits can be made to fail.
type FailingStore struct {
	store.Store

	// Fail makes commits fail from now on, some of them or all.
	Fail func()

	// Mend ends that, and returns the store to go on with: opened again if it was
	// closed, or writes nothing any more.
	Mend func() store.Store
}

// RunFailing tests what stores say of steps whose commits fail: nothing is said to be
// done that is not, nor is what happened said not to have. The suite closes the stores
// that open and Mend return.
func RunFailing(t *testing.T, open func(t *testing.T) FailingStore) {
	t.Helper()
	for name, meanwhile := range map[string]func(*tester){
		"steps whose commits fail":                                    func(*tester) {},
		"steps whose commits fail, and the store is closed meanwhile": func(t *tester) { _ = t.store.Close() },
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
				_ = failing.Close() // it may tell that something could not be kept
				for method, err := range everyMethod(t.Context(), failing.Store, Task{Webhook: &webhooks.Webhook{}}) {
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

// again takes the steps that were not done.
func (t *tester) again(list []*cut) {
	t.Helper()
	t.claim(1) // results count for the process that delivers
	for _, c := range list {
		if c.done(t) {
			continue
		}
		if err := c.do(t.Context(), t.store); err != nil {
			t.Errorf("%s again = %v", c.name, err)
		} else if !c.done(t) {
			t.Errorf("%s again was not done", c.name)
		}
	}
}
