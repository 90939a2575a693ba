package transfer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

func summaryOf(records ...transfer.Record) transfer.Summary {
	sums := make(transfer.Summary)
	for _, r := range records {
		sums.Add(r)
	}
	return sums
}

func TestSummary_Compare_FindsRealDifferencesOnly(t *testing.T) {
	list := records()
	want := summaryOf(list...)
	other := slices.Clone(list)
	slices.Reverse(other)
	for i, r := range other {
		if event, ok := r.(*transfer.Event); ok {
			later := *event
			later.Deliveries = slices.Clone(event.Deliveries)
			if d := &later.Deliveries[0]; d.State == driver.Pending {
				d.Wait, d.First, d.AsPublished = time.Minute, false, false
			}
			other[i] = &later
		}
	}
	if err := want.Compare(summaryOf(other...)); err != nil {
		t.Errorf("Compare with other order and due times: %v, want nil", err)
	}
	for i, r := range list {
		less := slices.Delete(slices.Clone(list), i, i+1)
		if err := want.Compare(summaryOf(less...)); err == nil || !strings.Contains(err.Error(), string(r.Kind())+": ") {
			t.Errorf("Compare without the %s: %v, want ErrDiffer", r.Kind(), err)
		}
	}
	key := *list[0].(*transfer.Key)
	key.Name = "another"
	err := want.Compare(summaryOf(append([]transfer.Record{&key}, list[1:]...)...))
	if err == nil || err.Error() != "the stores differ: key: 1 each, with different checksums" {
		t.Errorf("Compare with another name: %v", err)
	}
}
