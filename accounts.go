package storageapi

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/storageapi/storageapi/store"
)

// accountsStep is the page size of AllAccounts.
const accountsStep = 10_000 // bolt counts all pending deliveries for each page

// Accounts returns the sizes of the accounts that have a key, a webhook or an alert, in byte order
// of their names. It returns up to limit accounts, beginning with the first name that sorts after
// the parameter after; an empty after starts at the beginning. An empty result means that no
// accounts are left. limit must be at least 1.
//
// Accounts is meant for the host's operators. It counts the records on every call, because counters
// would slow down writes. 100 accounts of 1,000 keys take a few milliseconds. A million keys or
// pending deliveries of one account take about a tenth of a second. It blocks no other operation,
// but consider its cost before polling. To find the largest accounts, sort the result of
// [Handler.AllAccounts].
func (h *Handler) Accounts(ctx context.Context, after string, limit int) ([]store.AccountSize, error) {
	if limit < 1 {
		return nil, errors.New("storageapi: list accounts: limit must be at least 1")
	}
	accounts, err := h.store.Accounts(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("storageapi: list accounts: %w", err)
	}
	if len(accounts) == 0 {
		return nil, nil
	}
	sizes, err := h.store.AccountSizes(ctx, accounts)
	if err != nil {
		return nil, fmt.Errorf("storageapi: count the resources of accounts: %w", err)
	}
	return sizes, nil
}

// AllAccounts returns an iterator over the sizes of all accounts, in the order of
// [Handler.Accounts]. It stops after the first error.
func (h *Handler) AllAccounts(ctx context.Context) iter.Seq2[store.AccountSize, error] {
	return func(yield func(store.AccountSize, error) bool) {
		for after := ""; ; {
			sizes, err := h.Accounts(ctx, after, accountsStep)
			if err != nil {
				yield(store.AccountSize{}, err)
				return
			}
			for _, size := range sizes {
				if !yield(size, nil) {
					return
				}
			}
			if len(sizes) < accountsStep {
				return
			}
			after = sizes[len(sizes)-1].Account
		}
	}
}
