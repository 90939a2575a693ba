package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/client"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

func Example() {
	ctx := context.Background()
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		log.Panic(err)
	}
	defer api.Close()
	server := httptest.NewServer(api)
	defer server.Close()
	_, token, err := api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "first", Scopes: scopes.Specified()})
	if err != nil {
		log.Panic(err)
	}

	c, err := client.New(server.URL+"/v2", token.Reveal(), client.Options{})
	if err != nil {
		log.Panic(err)
	}
	key, err := c.CreateKey(ctx, client.CreateKey{Name: "ci", Scopes: []string{"files:read"}})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(key.Value) // Reveal returns it
	for key, err := range c.Keys(ctx, client.KeyQuery{}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(key.Name)
	}
	_, err = c.CreateKey(ctx, client.CreateKey{Name: "ci", Scopes: []string{"files:delete"}})
	if refusal, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refusal.Status, refusal.Code == auth.CodeValidation, refusal.Field)
	}

	// Output:
	// [redacted]
	// ci
	// first
	// 400 true scopes
}
