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

// TestDeliveries_Model_Passes runs the tests of webhooks.Deliveries on a store that keeps its
// contract. With a fault from the environment it is what the test below runs.
func TestDeliveries_Model_Passes(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault != "" {
		storetest.SetPatience(time.Second)
	}
	storetest.RunDeliveries(t, func(*testing.T) store.Store { return newModel(fault) })
	t.Run("Failing", func(t *testing.T) {
		storetest.RunFailingDeliveries(t, func(*testing.T) storetest.FailingStore { return newFailingModel(fault) })
	})
}

// TestDeliveries_BrokenModel_Fails breaks one sentence of the contract after the other.
func TestDeliveries_BrokenModel_Fails(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for fault, group := range map[string]string{
		"Enqueue is not reported":                          "ReportedDeliveries",
		"EnqueueOnce is not reported":                      "ReportedDeliveries",
		"UpdateAlert is not reported":                      "ReportedDeliveries",
		"a step that was refused is reported":              "ReportedDeliveries",
		"a resend is not reported":                         "ReportedDeliveries",
		"a resend is not First":                            "ReportedDeliveries",
		"a resend is no Probe":                             "ReportedDeliveries",
		"a resend of what is pending is not reported":      "ReportedDeliveries",
		"a resend of what is pending has no notice":        "ReportedDeliveries",
		"Before is lost":                                   "ReportedDeliveries",
		"AdvanceRecovery is not reported":                  "ReportedDeliveries",
		"Probe is not reported":                            "ReportedDeliveries",
		"results are reported":                             "ReportedDeliveries",
		"UpdateWebhook is not reported":                    "ReportedWebhooks",
		"a change of health is not reported":               "ReportedWebhooks",
		"a webhook that was reported is changed":           "ReportedWebhooks",
		"DeleteWebhook is not reported":                    "ReportedWebhooks",
		"EraseAccount is not reported":                     "ReportedWebhooks",
		"versions do not count":                            "ReportedWebhooks",
		"what is off is not reported":                      "Deliver",
		"what was there is read before steps are reported": "Deliver",
		"one page is reported":                             "Deliver",
		"reports go on after Deliver returned":             "Deliver",
		"a second Deliver does not wait":                   "Deliver",
		"what is off is Ready":                             "Load",
		"what is on hold is Ready":                         "Load",
		"deliveries of a deleted webhook stay":             "Load",
		"Load answers in another order":                    "Load",
		"RetryAfter is not kept":                           "Load",
		"a number is stored twice":                         "Settle",
		"an ended context settles":                         "Settle",
		"the version of health is not looked at":           "Settle",
		"notices are stored without their change":          "Settle",
		"a conflict holds up results":                      "Settle",
		"what was reported is counted as not":              "Unreported",
		"what failed and is visible is not reported":       "Failing",
		"what failed and is not visible is reported":       "Failing",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, "-test.run=^TestDeliveries_Model_Passes$/^"+group+"$", "-test.failfast")
			cmd.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestDeliveries_Model_Passes/"+group) {
				t.Errorf("the group %s passes: %v\n%s", group, err, out)
			}
		})
	}
}
