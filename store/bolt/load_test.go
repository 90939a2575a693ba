package bolt

import (
	"testing"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// A claim of newly published deliveries needs no transaction, because the events are in memory.
func TestClaim_JustPublished_BeginsNoTransaction(t *testing.T) {
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	worker := storetest.WorkerOf(s)
	if tasks, err := worker.Claim(t.Context(), 1); err != nil || len(tasks) > 0 { // starts the delivery
		t.Fatal(tasks, err)
	}
	if _, err := s.Enqueue(t.Context(), testEvent(1, 10)); err != nil {
		t.Fatal(err)
	}
	before := s.db.Stats()
	tasks, err := worker.Claim(t.Context(), 1)
	if err != nil || len(tasks) != 1 || tasks[0].Err != nil || len(tasks[0].Event.Body) != 10 || tasks[0].Webhook.ID != "wh1" {
		t.Errorf("Claim = %+v, %v", tasks, err)
	}
	if after := s.db.Stats(); after.TxN != before.TxN {
		t.Errorf("the claim began %d transactions", after.TxN-before.TxN)
	}
}
