package cli_test

import (
	"context"
	"os"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/cli"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

func ExampleRun() {
	open := func(ctx context.Context) (*storageapi.Handler, func() error, error) {
		api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()}) // a host uses its own store
		if err != nil {
			return nil, nil, err
		}
		_, _, err = api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "first", Scopes: scopes.Specified(), First: true})
		return api, api.Close, err
	}
	_ = cli.Run(context.Background(), []string{"accounts", "list"}, cli.Config{Open: open, Stdout: os.Stdout})

	// Output:
	// KEYS  WEBHOOKS  PENDING  ACCOUNT
	// 1     0         0        acct_1
}
