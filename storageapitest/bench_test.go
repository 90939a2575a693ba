package storageapitest_test

import (
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/storageapitest"
)

// BenchmarkSchedule runs a test of one event's whole schedule: a kit, a receiver that always
// answers 500, and ten attempts in 75.6 hours.
func BenchmarkSchedule(b *testing.B) {
	test := testing.InternalTest{Name: "schedule", F: func(t *testing.T) {
		storageapitest.Bubble(t, func(t *testing.T) {
			kit := storageapitest.New(t)
			receiver := kit.Subscribe(alerts.TypeBalanceLow)
			receiver.Script(storageapitest.Status(500))
			publish(t, kit, 1)
			kit.WaitIdle()
			if n := len(receiver.Requests()); n != 10 {
				t.Errorf("%d attempts, want 10", n)
			}
		})
	}}
	all := func(string, string) (bool, error) { return true, nil }
	for b.Loop() {
		if !testing.RunTests(all, []testing.InternalTest{test}) {
			b.Fatal("the test failed")
		}
	}
}
