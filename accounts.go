package storageapi

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/storageapi/storageapi/store"
)

// accountsStep is how many accounts AllAccounts counts at a time.
const accountsStep = 100

// Accounts returns the sizes of accounts that have a key, a webhook or an alert, in the
// order of their bytes: at most limit of those after the given one, or of the first if that
// is empty. None is past the end. limit must be at least 1.
//
// It is for the host's operators. What accounts have is counted at each call, so that it
// costs nothing to those who write: 100 accounts of 1,000 keys take some milliseconds, and a
// million keys or pending deliveries of one account a tenth of a second or so. Nothing
// waits for it, but take the time into account before you ask often. To find the
// largest, sort what [Handler.AllAccounts] returns.
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
		return nil, fmt.Errorf("storageapi: count what accounts have: %w", err)
	}
	return sizes, nil
}

// AllAccounts returns the sizes of all accounts, as [Handler.Accounts] does. It ends after
// the first error.
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
