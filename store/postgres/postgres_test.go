package postgres_test

import (
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, emptySchema(t)) })
}

func TestStoreDurable(t *testing.T) {
	options := map[string]postgres.Option{}
	storetest.RunDurable(t, func(t *testing.T, dir string) store.Store {
		if options[dir] == nil {
			options[dir] = inSchema(t)
		}
		return open(t, options[dir])
	})
}
