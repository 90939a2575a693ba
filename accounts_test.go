package storageapi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
)

// AllAccounts must return the accounts of all pages, allow the loop to stop early, and report an
// error only once.
func TestAllAccounts(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	var want, got []store.AccountSize
	for i := range 201 { // more than two pages
		account := fmt.Sprintf("acct_%03d", i)
		for range 1 + i%3 {
			if _, _, err := api.Keys.Create(t.Context(), account, apikeys.CreateParams{Name: "key", Scopes: scopes.Specified()}); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, store.AccountSize{Account: account, Keys: 1 + i%3})
	}
	for size, err := range api.AllAccounts(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, size)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	page, err := api.Accounts(t.Context(), "acct_100", 2)
	if diff := cmp.Diff(want[101:103], page); diff != "" || err != nil {
		t.Errorf("a page: %v (-want +got):\n%s", err, diff)
	}
	if page, err := api.Accounts(t.Context(), "acct_200", 2); len(page) > 0 || err != nil {
		t.Errorf("past the end: %v, %v", page, err)
	}
	if _, err := api.Accounts(t.Context(), "", 0); err == nil {
		t.Error("a page of none is no error")
	}
	for range api.AllAccounts(t.Context()) {
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for _, err := range api.AllAccounts(ended) {
		if errs++; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1", errs)
	}
}
