package store_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
)

// A Store keeps keys, webhooks and events. Every backend behaves like the memory store used here.
func Example() {
	var s store.Store = memory.New()
	_, err := s.KeyByID(context.Background(), "acct_1", "key_1")
	fmt.Println(errors.Is(err, apierr.ErrNotFound))

	_ = s.Close()
	_, err = s.KeyByID(context.Background(), "acct_1", "key_1")
	fmt.Println(errors.Is(err, store.ErrClosed))
	// Output:
	// true
	// true
}
