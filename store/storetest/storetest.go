// Package storetest proves that a [store.Store] keeps its contract, which is
// the comments of apikeys.Store, webhooks.Store and store.Store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
//	}
//
// # Every store
//
// [Run] walks through the contract, a subtest for each sentence, many goroutines
// at once where the sentence is about them. Call it from the backend's own
// tests, and run those with the race detector.
//
// # Stores that survive a restart
//
// [RunDurable] closes stores and opens them again. [RunFailing] has their commits fail,
// if the backend has a way to make them.
//
// # What is left to the backend
//
// The suite cannot kill the process, set the clock, or spoil a record so that it
// comes as a Task with Err set. A backend tests by itself what happens then.
//
// # Time
//
// The suite runs in real time, because a store may have a clock of its own. It
// takes a few seconds, and no test depends on how fast the store is, as long as
// a call takes less than a minute.
package storetest

import (
	"errors"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store"
)

// A runner runs one test on a store of its own.
type runner func(name string, test func(*tester))

// Run tests the stores that open returns: an empty one at each call, which the
// suite closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	runGroups(t, open, []group{
		{"Context", contexts},
		{"Close", closing},
		{"Cut", cutting},
		{"Keys", keyValues},
		{"CreateKey", createKey},
		{"KeyTerms", keyOptions},
		{"KeyShare", keyShare},
		{"DeleteKeyRequests", deletedRequesters},
		{"KeyByHash", keyByHash},
		{"ListKeys", listKeys},
		{"ExpiringKeys", expiringKeys},
		{"UpdateKey", updateKey},
		{"DeleteKey", deleteKey},
		{"RecordKeyUse", recordKeyUse},
		{"Webhooks", webhookValues},
		{"CreateWebhook", createWebhook},
		{"WebhookTerms", webhookOptions},
		{"ListWebhooks", webhookRecords.lists},
		{"UpdateWebhook", updateWebhook},
		{"Versions", versions},
		{"DeleteWebhook", deleteWebhook},
		{"Enqueue", enqueue},
		{"EnqueueRaces", enqueueRaces},
		{"Skipped", skipped},
		{"UpdateAlert", updateAlert},
		{"AlertEvents", alertEvents},
		{"Deferrable", deferrableAlerts},
		{"DueAlerts", dueAlerts},
		{"AlertRaces", alertRaces},
		{"UpdateFileScan", updateFileScan},
		{"DedupKeys", dedupKeys},
		{"Attempts", attempts},
		{"Failing", failing},
		{"Held", held},
		{"Off", off},
		{"EventDeliveries", eventDeliveries},
		{"EventByID", eventByID},
		{"ListEvents", listEvents},
		{"ListDeliveries", listDeliveries},
		{"Pages", deliveryPages},
		{"Failed", failedDeliveries},
		{"History", longHistory},
		{"Redeliver", redeliver},
		{"CreateRecovery", createRecovery},
		{"AdvanceRecovery", advanceRecovery},
		{"RecoveryJobs", recoveryJobs},
		{"Purge", purging},
		{"Lifetimes", lifetimes},
		{"DeliveryRaces", deliveryRaces},
		{"AccountSizes", accountSizes},
		{"EraseAccount", erasing},
		{"Notices", addingNotices},
		{"ListNotices", listingNotices},
		{"TakeNotices", takingNotices},
		{"RoutineNotices", routineNotices},
		{"NoticesOfChanges", noticesOfChanges},
	})
	runGroups(t, open, deliveryGroups)
	t.Run("Transfer", func(t *testing.T) { RunTransfer(t, open, open) })
}

// A group is some tests of one subject.
type group struct {
	name  string
	tests func(runner)
}

// deliveryGroups test [webhooks.Deliveries], of stores that implement it.
var deliveryGroups = []group{
	{"Deliver", deliver},
	{"ReportedDeliveries", reportedDeliveries},
	{"ReportedWebhooks", reportedWebhooks},
	{"Load", load},
	{"Settle", settle},
	{"Unreported", unreported},
}

func runGroups(t *testing.T, open func(t *testing.T) store.Store, groups []group) {
	t.Helper()
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			group.tests(func(name string, test func(*tester)) {
				t.Run(name, func(t *testing.T) {
					s := open(t)
					defer closeStore(t, s)
					test(&tester{t, s})
				})
			})
		})
	}
}

func closeStore(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// closing tests what [store.Store] says of Close.
func closing(run runner) {
	run("every method returns ErrClosed from then on", func(t *tester) {
		task := t.someOfAll()
		t.must(t.store.Close())
		for method, err := range everyMethod(t.Context(), t.store, task) {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s = %v, want ErrClosed", method, err)
			}
		}
	})

	run("closing a closed store does nothing and returns nil", func(t *tester) {
		t.must(t.store.Close())
		t.must(t.store.Close())
	})

	run("steps under way succeed or return ErrClosed", func(t *tester) {
		inParallel(8, func(i int) {
			if i == 0 {
				if err := t.store.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				return
			}
			for j := range 10 {
				err := t.store.CreateKey(t.Context(), newKey("acct", numbered("key", 10*i+j)), apikeys.CreateOptions{})
				if err != nil && !errors.Is(err, store.ErrClosed) {
					t.Errorf("CreateKey = %v, want nil or ErrClosed", err)
				}
			}
		})
	})
}
