// Package storetest tests a [store.Store] against the contract in package store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
//	}
//
// # All stores
//
// [Run] tests each sentence of the contract, with concurrent goroutines if the sentence is about
// concurrency. Call it from the backend's own tests, and run these tests with the race detector.
//
// # Stores that survive a restart
//
// [RunDurable] closes stores and reopens them. [RunFailing] makes their commits fail, if the
// backend supports that.
//
// # Tests of the backend
//
// The suite cannot kill the process, set the clock, or damage a record so that its Task has an Err.
// The backend's own tests must cover these cases.
//
// # Time
//
// The suite runs in real time, because a store may have its own clock. It takes a few seconds.
// Tests wait up to ten seconds for reports and due deliveries, so they also pass with slow stores.
package storetest

import (
	"errors"
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// A runner runs a test with a new store.
type runner func(name string, test func(*tester))

// Run tests a store. Each call of open must return an empty store, which the suite closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	runGroups(t, open, []group{
		{"Context", contexts},
		{"Close", closing},
		{"Cut", cutting},
		{"Keys", keyValues},
		{"CreateKey", createKey},
		{"KeyTerms", keyOptions},
		{"DeleteKeyRequests", deletedRequesters},
		{"WatchKeys", watchedKeys},
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
		{"Resources", resources},
		{"AllEvents", allEvents},
		{"UpdateAlert", updateAlert},
		{"AlertEvents", alertEvents},
		{"Deferrable", deferrableAlerts},
		{"DueAlerts", dueAlerts},
		{"AlertRaces", alertRaces},
		{"UpdateScan", updateScan},
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
		{"Audit entries", addingAuditEntries},
		{"ListAuditEntries", listingAuditEntries},
		{"TakeAuditEntries", takingAuditEntries},
		{"RoutineAuditEntries", routineAuditEntries},
		{"AuditEntriesOfChanges", entriesOfChanges},
	})
	runGroups(t, open, deliveryGroups)
	t.Run("Transfer", func(t *testing.T) { RunTransfer(t, open, open) })
}

// A group holds the tests of one subject.
type group struct {
	name  string
	tests func(runner)
}

// deliveryGroups holds the tests of [driver.Deliveries].
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

// closing tests Close.
func closing(run runner) {
	run("every method returns ErrClosed after Close", func(t *tester) {
		task := t.fillForEveryMethod()
		t.must(t.store.Close())
		for method, err := range everyMethod(t.Context(), t.store, task) {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s = %v, want ErrClosed", method, err)
			}
		}
	})

	run("Close of a closed store does nothing and returns nil", func(t *tester) {
		t.must(t.store.Close())
		t.must(t.store.Close())
	})

	run("steps in progress succeed or return ErrClosed", func(t *tester) {
		inParallel(8, func(i int) {
			if i == 0 {
				if err := t.store.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				return
			}
			for j := range 10 {
				err := t.store.CreateKey(t.Context(), newKey("acct", numbered("key", 10*i+j)), driver.CreateOptions{})
				if err != nil && !errors.Is(err, store.ErrClosed) {
					t.Errorf("CreateKey = %v, want nil or ErrClosed", err)
				}
			}
		})
	})
}
