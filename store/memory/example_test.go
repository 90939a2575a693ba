package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// In tests, a service behaves with a memory store as it does with any other store.
func Example() {
	ctx := context.Background()
	store := memory.New()
	defer func() { _ = store.Close() }()

	keys, err := apikeys.New(store, apikeys.Config{})
	if err != nil {
		panic(err)
	}
	defer keys.Close()

	key, token, err := keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "nightly backup", Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		panic(err)
	}
	principal, err := keys.Verify(ctx, token.Reveal())
	fmt.Println(principal.Account, principal.Scopes, err)

	if err := keys.Delete(ctx, "acct_1", key.ID, apikeys.DeleteParams{}); err != nil {
		panic(err)
	}
	_, err = keys.Verify(ctx, token.Reveal())
	fmt.Println(errors.Is(err, auth.ErrUnauthorized))

	// Output:
	// acct_1 files:read <nil>
	// true
}
