package secretscanning_test

import (
	"context"
	"crypto/ecdsa"
	"log"
	"net/http"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/secretscanning"
)

func ExampleNew() {
	var keys *apikeys.KeyService // Handler.Keys of your host

	// current returns a copy of https://api.github.com/meta/public_keys/secret_scanning that the
	// host fetches again every hour.
	var current func() []byte

	handler, err := secretscanning.New(keys, secretscanning.Config{
		PublicKey: func(_ context.Context, identifier string) (*ecdsa.PublicKey, error) {
			list, err := secretscanning.ParsePublicKeys(current())
			return list[identifier], err
		},
		Revoke: true,
		Found: func(_ context.Context, leak secretscanning.Leak) {
			log.Printf("key %s of %s was found at %s (%v)", leak.Value.Key.ID, leak.Value.Key.Account, leak.URL, leak.Err)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /github/leaks", handler)
}
