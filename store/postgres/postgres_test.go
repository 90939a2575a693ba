package postgres_test

import (
	"sync"
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	var known sync.Map // tests that have opened a store
	storetest.Run(t, func(t *testing.T) store.Store {
		if _, again := known.LoadOrStore(t, true); !again {
			t.Parallel()
		}
		return open(t, emptySchema(t))
	})
}

func TestStoreDurable(t *testing.T) {
	t.Parallel()
	options := map[string]postgres.Option{}
	storetest.RunDurable(t, func(t *testing.T, dir string) store.Store {
		if options[dir] == nil {
			options[dir] = inSchema(t)
		}
		return open(t, options[dir])
	})
}
