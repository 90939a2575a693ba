package storetest

import (
	"errors"
	"strconv"

	"github.com/storageapi/storageapi/store/driver"
)

// keepScan returns a change function that sets the state of the scan for expiring files.
func keepScan(state string) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return []byte(state), nil }
}

func (t *tester) updateScan(state string) {
	t.Helper()
	t.must(t.store.UpdateScan(t.Context(), keepScan(state)))
}

func (t *tester) scanState() (kept string) {
	t.Helper()
	t.must(t.store.UpdateScan(t.Context(), func(state []byte) ([]byte, error) {
		kept = string(state)
		return state, nil
	}))
	return kept
}

func updateScan(run runner) {
	run("stores the returned state", func(t *tester) {
		wantSame(t, "state at first", t.scanState(), "")
		for _, state := range []string{"a", "\x00\xff", long("state", 4096), "b", "b", "", "", "c"} {
			t.updateScan(state)
			wantSame(t, "state", t.scanState(), state)
		}
	})

	run("is separate from alerts, and makes no alert due", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.updateScan("scan")
		t.updateAlert("acct", "files", keepState("alert"))
		t.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.Threshold = 7 })
		wantSame(t, "the scan's state", t.scanState(), "scan")
		wantSame(t, "State", t.alert("acct", "files"), "alert")
		t.wantDue()
	})

	run("copies the state in and out", func(t *tester) {
		state := []byte("state")
		t.must(t.store.UpdateScan(t.Context(), func([]byte) ([]byte, error) { return state, nil }))
		state[0] = 'x'
		var given []byte
		t.must(t.store.UpdateScan(t.Context(), func(kept []byte) ([]byte, error) {
			given = kept
			return kept, nil
		}))
		given[0] = 'y'
		wantSame(t, "state", t.scanState(), "state")
	})

	run("returns the error of change and stores nothing", func(t *tester) {
		t.updateScan("before")
		no := errors.New("no")
		t.wantError("UpdateScan", t.store.UpdateScan(t.Context(), func([]byte) ([]byte, error) { return []byte("after"), no }), no)
		wantSame(t, "state", t.scanState(), "before")
	})

	run("runs concurrent changes one after the other", func(t *tester) {
		const callers, each = 8, 10
		inParallel(callers, func(int) {
			for range each {
				err := t.store.UpdateScan(t.Context(), func(state []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(state))
					return strconv.AppendInt(nil, int64(n+1), 10), nil
				})
				t.wantError("UpdateScan", err, nil)
			}
		})
		wantSame(t, "state", t.scanState(), strconv.Itoa(callers*each))
	})
}

// durableScan tests that the state of the scan survives a restart.
func durableScan(reopened func(name string, before, after func(*tester))) {
	reopened("the state of the scan for expiring files", func(t *tester) {
		t.updateScan("first")
		t.updateScan("second")
	}, func(t *tester) { wantSame(t, "the state", t.scanState(), "second") })
}
