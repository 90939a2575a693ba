package contract

import (
	"flag"
	"strconv"
	"strings"
	"testing"
)

// TestContract provokes every documented response on a host with the default vocabulary.
func TestContract(t *testing.T) { testContract(t, load(t)) }

// TestContractOfAHost does the same as TestContract, but on a host with its own scopes, event
// types, names and limits.
func TestContractOfAHost(t *testing.T) {
	d := loadOwn(t)
	testContract(t, d)
	t.Run("own scopes", newHost(t, d, nil).testOwnScopes)
}

func testContract(t *testing.T, d *document) {
	h := newHost(t, d, nil)
	t.Run("keys", h.testKeys)
	t.Run("webhooks", h.testWebhooks)
	t.Run("test events", h.testTestEvents)
	t.Run("events", h.testEvents)
	t.Run("deliveries", h.testDeliveries)
	t.Run("event list", h.testEventList)
	t.Run("audit entries", h.testAuditLog)
	t.Run("any operation", h.testAny)
	t.Run("no operation", h.testNone)
	t.Run("limits", func(t *testing.T) { testLimits(t, h) })
	t.Run("retention", func(t *testing.T) { testRetention(t, h) })
	t.Run("rates", func(t *testing.T) { testRates(t, h) })
	t.Run("failures", func(t *testing.T) { testFailing(t, h) })

	if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // -run has selected only some of the tests
	}
	for _, op := range d.operations {
		for status := range op.Operation.Responses.Map() {
			if !h.seen.statuses[op.id][number(t, status)] {
				t.Errorf("documented and never seen: %s %s", op.id, status)
			}
		}
	}
}

func number(t *testing.T, status string) int {
	t.Helper()
	n, err := strconv.Atoi(status)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
