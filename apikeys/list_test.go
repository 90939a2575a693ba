package apikeys_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// All goes on from page to page, can be ended, and tells of an error once.
func TestAll(t *testing.T) {
	service, _ := newClocked(t)
	var want []string
	for range 101 { // more than a page
		key, _ := create(t, service, time.Time{})
		want = append([]string{key.ID}, want...)
	}
	var got []string
	for key, err := range service.All(t.Context(), account) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key := range service.All(t.Context(), account) {
		if key.ID != want[0] {
			t.Errorf("begins with %s, want %s", key.ID, want[0])
		}
		break
	}
	for range service.All(t.Context(), "acct_2") {
		t.Error("another account has some")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for key, err := range service.All(ended, account) {
		if errs++; !errors.Is(err, context.Canceled) || key.ID != "" {
			t.Errorf("got %+v, %v", key, err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1", errs)
	}
}
