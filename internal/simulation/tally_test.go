package simulation_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/storageapi/storageapi/store"
)

// A tally counts the faults that each method met, over all seeds.
type tally struct {
	mu    sync.Mutex
	count map[[2]string]int // by method and fault
	seeds int
	ops   int
}

func (t *tally) add(method, fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = make(map[[2]string]int)
	}
	t.count[[2]string{method, fault}]++
}

func (t *tally) seed(ops int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seeds++
	t.ops += ops
}

// uncalled are the methods that need not meet a fault. The customers of the simulation do not call
// them, or faulty passes their calls on without faults.
var uncalled = []string{
	"Capabilities",
	"AccountSizes", "Accounts", "EventByID", "ExpiringKeys", "Export", "HeldWebhooks", "Import", "ListEvents", "ListAuditEntries", "OffWebhooks",
}

// unmet returns the store methods that met no fault although they should have.
func (t *tally) unmet() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := reflect.TypeFor[store.Store]()
	for method := range all.Methods() {
		name, met := method.Name, false
		for pair := range t.count {
			met = met || pair[0] == name
		}
		if !met && name != "Close" && name != "Deliver" && name != "Probe" && !slices.Contains(uncalled, name) { // the first two meet restarts
			names = append(names, name)
		}
	}
	return names
}

// String returns a table with a row for each method and a column for each fault.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	methods, faults := make(map[string]bool), make(map[string]bool)
	for pair := range t.count {
		methods[pair[0]], faults[pair[1]] = true, true
	}
	columns := slices.Sorted(maps.Keys(faults))
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d operations\n%-18s", t.seeds, t.ops, "")
	for _, fault := range columns {
		fmt.Fprintf(&b, " %10s", fault)
	}
	for _, method := range slices.Sorted(maps.Keys(methods)) {
		fmt.Fprintf(&b, "\n%-18s", method)
		for _, fault := range columns {
			fmt.Fprintf(&b, " %10d", t.count[[2]string{method, fault}])
		}
	}
	return b.String()
}
