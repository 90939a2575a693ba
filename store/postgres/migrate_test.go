package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/store/postgres"
)

// newSchema returns the name of a schema that is not there, and is dropped in the
// end.
func newSchema(t *testing.T) string {
	t.Helper()
	p := pool(t)
	name := fmt.Sprintf(`Odd "name" %d %d`, os.Getpid(), schemas.Add(1))
	t.Cleanup(func() { drop(t, p, name) })
	return name
}

func TestMigrateAtOnce(t *testing.T) {
	p := pool(t)
	for range 4 {
		option := postgres.InSchema(newSchema(t))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if err := postgres.Migrate(t.Context(), p, option); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		open(t, option)
	}
}

func TestSchemaRefused(t *testing.T) {
	p := pool(t)
	name := newSchema(t)
	option := postgres.InSchema(name)
	if _, err := postgres.New(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("New without a schema = %v, want ErrSchema", err)
	}
	if err := postgres.Migrate(t.Context(), p, option); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Exec(t.Context(), fmt.Sprintf(`insert into %s.versions (version) values (99)`, quoted(name))); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("Migrate of a newer schema = %v, want ErrSchema", err)
	}
	if _, err := postgres.New(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("New on a newer schema = %v, want ErrSchema", err)
	}
}

func TestSQL(t *testing.T) {
	option := postgres.InSchema(newSchema(t))
	for _, sql := range postgres.SQL(option) {
		if _, err := pool(t).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	open(t, option)
}

func TestOptionsRefused(t *testing.T) {
	for _, option := range []postgres.Option{postgres.InSchema(""), postgres.InSchema(fmt.Sprintf("%049d", 0)), postgres.PollEvery(0)} {
		if err := postgres.Migrate(t.Context(), pool(t), option); err == nil {
			t.Error("Migrate = nil, want an error")
		}
		if _, err := postgres.New(t.Context(), pool(t), option); err == nil {
			t.Error("New = nil, want an error")
		}
	}
}
