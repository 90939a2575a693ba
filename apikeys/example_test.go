package apikeys_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

func Example() {
	ctx := context.Background()
	keys, err := apikeys.New(memory.New(), apikeys.Config{})
	if err != nil {
		panic(err)
	}
	defer keys.Close()

	key, token, err := keys.Create(ctx, "acct_1", apikeys.CreateParams{
		Name:   "CI",
		Scopes: scopes.Of(scopes.FilesRead, scopes.FilesWrite),
	})
	if err != nil {
		panic(err)
	}

	// The token is shown once; nothing else prints it.
	text := token.Reveal()
	fmt.Println(strings.HasPrefix(text, "sak_"), len(text), token)

	// A server verifies every request like this. An auth.Authenticator does it for you.
	caller, err := keys.Verify(ctx, text)
	fmt.Println(caller.Account, caller.Scopes, err)

	// A deleted key stops working at once.
	if err := keys.Delete(ctx, "acct_1", key.ID, apikeys.DeleteParams{}); err != nil {
		panic(err)
	}
	_, err = keys.Verify(ctx, text)
	fmt.Println(errors.Is(err, auth.ErrUnauthorized))

	// Output:
	// true 42 [redacted]
	// acct_1 files:read files:write <nil>
	// true
}

// A key gets a new token. The old token works for another hour.
func ExampleKeyService_Rotate() {
	ctx, now := context.Background(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	keys, err := apikeys.New(memory.New(), apikeys.Config{Now: func() time.Time { return now }})
	if err != nil {
		panic(err)
	}
	defer keys.Close()
	key, old, err := keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "CI", Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		panic(err)
	}
	_, young, err := keys.Rotate(ctx, "acct_1", key.ID, apikeys.RotateParams{Grace: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 2 {
		_, oldErr := keys.Verify(ctx, old.Reveal())
		_, youngErr := keys.Verify(ctx, young.Reveal())
		fmt.Println(now.Format(time.TimeOnly), oldErr, youngErr)
		now = now.Add(time.Hour)
	}
	// Output:
	// 12:00:00 <nil> <nil>
	// 13:00:00 missing, invalid or expired API key <nil>
}
