package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, emptySchema(t)) })
}

// One that remembers keys. What is not about these is the same as in TestStore.
func TestStoreRemembers(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		if group := strings.Split(t.Name(), "/")[1]; slices.Contains(indifferent, group) {
			t.Skip("no keys are looked up in another way than in TestStore")
		}
		return open(t, emptySchema(t), postgres.CacheKeys(2, time.Hour))
	})
}

// indifferent are the groups of storetest in which neither a key that was changed is looked
// up nor anything is claimed, or only to have been.
var indifferent = []string{
	"Context", "Close", "ListKeys", "CreateWebhook", "WebhookTerms", "ListWebhooks", "UpdateWebhook", "UpdateAlert", "AlertEvents", "Deferrable", "DueAlerts", "AlertRaces", "UpdateFileScan", "DedupKeys",
	"EventDeliveries", "ListDeliveries", "Pages", "Failed", "CreateRecovery",
}

func TestStoreDurable(t *testing.T) {
	options := map[string]postgres.Option{}
	storetest.RunDurable(t, func(t *testing.T, dir string) store.Store {
		if options[dir] == nil {
			options[dir] = inSchema(t)
		}
		return open(t, options[dir])
	})
}
