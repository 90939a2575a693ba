package bolt_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
)

// A host usually passes a path to storageapi.NewHandler, which opens the file
// itself. Opening it here lets several parts of a program share it.
func Example() {
	dir, err := os.MkdirTemp("", "bolt-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	s, err := bolt.Open(filepath.Join(dir, "storage.db"))
	if err != nil {
		panic(err)
	}
	keys, err := apikeys.New(s, apikeys.Config{})
	if err != nil {
		panic(err)
	}
	key, token, err := keys.Create(context.Background(), "acct_1", apikeys.CreateParams{Name: "ci", Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		panic(err)
	}
	keys.Close()
	if err := s.Close(); err != nil {
		panic(err)
	}

	// The file contains all acknowledged changes when it is opened again.
	if s, err = bolt.Open(filepath.Join(dir, "storage.db")); err != nil {
		panic(err)
	}
	defer s.Close()
	found, err := s.KeyByHash(context.Background(), token.Hash())
	fmt.Println(found.Name, found.Scopes, found.ID == key.ID, err)
	// Output: ci files:read true <nil>
}
