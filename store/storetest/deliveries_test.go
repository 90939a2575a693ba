package storetest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
)

const faultVariable = "STORETEST_FAULT"

// The model must pass the suite. The test below runs this test with a fault set in the environment,
// and expects it to fail.
func TestDeliveries_Model_Passes(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault != "" {
		storetest.SetEventTimeout(time.Second)
	}
	storetest.RunDeliveries(t, func(*testing.T) store.Store { return newModel(fault) })
	t.Run("Failing", func(t *testing.T) {
		storetest.RunFailingDeliveries(t, func(*testing.T) storetest.FailingStore { return newFailingModel(fault) })
	})
}

// The suite must detect each fault. A fault breaks one sentence of the contract.
func TestDeliveries_BrokenModel_Fails(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for fault, group := range map[string]string{
		"Enqueue is not reported":                               "ReportedDeliveries",
		"EnqueueOnce is not reported":                           "ReportedDeliveries",
		"UpdateAlert is not reported":                           "ReportedDeliveries",
		"a failed step is reported":                             "ReportedDeliveries",
		"a redelivery is not reported":                          "ReportedDeliveries",
		"a redelivery is not First":                             "ReportedDeliveries",
		"a redelivery reports no Probe":                         "ReportedDeliveries",
		"a redelivery of a pending delivery is not reported":    "ReportedDeliveries",
		"a redelivery of a pending delivery has no audit entry": "ReportedDeliveries",
		"Before is lost":                                        "ReportedDeliveries",
		"AdvanceRecovery is not reported":                       "ReportedDeliveries",
		"Probe is not reported":                                 "ReportedDeliveries",
		"results are reported":                                  "ReportedDeliveries",
		"UpdateWebhook is not reported":                         "ReportedWebhooks",
		"a change of health is not reported":                    "ReportedWebhooks",
		"a reported webhook is changed":                         "ReportedWebhooks",
		"DeleteWebhook is not reported":                         "ReportedWebhooks",
		"EraseAccount is not reported":                          "ReportedWebhooks",
		"the version does not increase":                         "ReportedWebhooks",
		"deliveries of inactive webhooks are not reported":      "Deliver",
		"the backlog is read before steps are reported":         "Deliver",
		"only one page is reported":                             "Deliver",
		"reports go on after Deliver returned":                  "Deliver",
		"a second Deliver does not wait":                        "Deliver",
		"inactive webhooks are Ready":                           "Load",
		"webhooks on hold are Ready":                            "Load",
		"deliveries of a deleted webhook stay":                  "Load",
		"Load returns another order":                            "Load",
		"RetryAfter is ignored":                                 "Load",
		"an attempt number is stored twice":                     "Settle",
		"Settle ignores an ended context":                       "Settle",
		"Settle ignores the version of health":                  "Settle",
		"audit entries are stored without their change":         "Settle",
		"a conflict holds up results":                           "Settle",
		"reported deliveries are counted as unreported":         "Unreported",
		"a visible step with a failed commit is not reported":   "Failing",
		"an invisible step with a failed commit is reported":    "Failing",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, "-test.run=^TestDeliveries_Model_Passes$/^"+group+"$", "-test.failfast")
			cmd.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestDeliveries_Model_Passes/"+group) {
				t.Errorf("group %s passes: %v\n%s", group, err, out)
			}
		})
	}
}
