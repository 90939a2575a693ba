package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrSchema is wrapped by the errors of [Migrate] and [New] if the schema is from a
// newer version of this package, or not ours.
var ErrSchema = errors.New("not a schema that this version can use")

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultSchema is where tables are, unless [InSchema] says otherwise.
const DefaultSchema = "storageapi"

// SQL returns the statements that bring an empty database to each version, oldest
// first, for hosts that apply them with a tool of their own. Each notes its version
// in the table versions, and is to be a transaction.
func SQL(options ...Option) []string {
	o := optionsOf(options)
	files, _ := fs.Glob(migrations, "migrations/*.sql") // in the order of their names
	var list []string
	for _, name := range files {
		text, _ := migrations.ReadFile(name)
		list = append(list, o.names.in(string(text)))
	}
	return list
}

// Migrate brings the schema to this version, and creates it if it is not there. It
// may run on many nodes at once: one does the work while the others wait. Each
// version is applied in a transaction of its own. A schema of a newer version is
// refused with [ErrSchema].
func Migrate(ctx context.Context, pool *pgxpool.Pool, options ...Option) error {
	o := optionsOf(options)
	if err := o.check(); err != nil {
		return err
	}
	steps := SQL(options...)
	version, err := versionOf(ctx, pool, o)
	for try := 1; err == nil && version < len(steps); {
		failed := pgx.BeginTxFunc(ctx, pool, transaction, func(tx pgx.Tx) error { return apply(ctx, tx, o, steps[version], version) })
		was := version
		if version, err = versionOf(ctx, pool, o); version != was {
			continue // it is ours or another's
		}
		// What another has just made can be in the way before it can be seen.
		if c := code(failed); try == maxTries || c != uniqueViolation && c != duplicateSchema && c != duplicateTable {
			err = errors.Join(failed, err)
		}
		try++
	}
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", o.schema, err)
	}
	return nil
}

// apply takes a schema of that version to the next, if it still is of that version.
//
// Who comes second waits for the lock, and then sees what the first has done. Where
// advisory locks are missing, or do nothing, it waits for the row that the first notes
// its version with, and is undone.
func apply(ctx context.Context, tx pgx.Tx, o *options, step string, version int) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, "storageapi migrate "+o.schema)
		return err
	})
	if c := code(err); err != nil && c != undefinedFunction && c != notSupported {
		return err
	}
	if now, err := versionOf(ctx, tx, o); err != nil || now != version {
		return err
	}
	_, err = tx.Exec(ctx, step)
	return err
}

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// versionOf returns the version that the schema has: 0 if it is not there. One that
// is newer than this package is an error.
func versionOf(ctx context.Context, db querier, o *options) (version int, err error) {
	var table *string
	if err := db.QueryRow(ctx, `select to_regclass($1)::text`, o.names.in(`storageapi.versions`)).Scan(&table); err != nil || table == nil {
		return 0, err
	}
	err = db.QueryRow(ctx, o.names.in(`select coalesce(max(version), 0) from storageapi.versions`)).Scan(&version)
	if newest := len(SQL()); err == nil && version > newest {
		err = fmt.Errorf("%w: it is of version %d, newer than %d", ErrSchema, version, newest)
	}
	return version, err
}

// checkSchema refuses a schema that was not migrated to this version.
func checkSchema(ctx context.Context, pool *pgxpool.Pool, o *options) error {
	version, err := versionOf(ctx, pool, o)
	if want := len(SQL()); err == nil && version != want {
		err = fmt.Errorf("%w: it is of version %d, and must be brought to %d by Migrate", ErrSchema, version, want)
	}
	if err != nil {
		return fmt.Errorf("schema %s: %w", o.schema, err)
	}
	return nil
}

// names puts tables into the schema that the host has chosen: in statements it is
// written storageapi.
type names struct{ schema string } // quoted; empty: as written

func (n names) in(sql string) string {
	if n.schema == "" {
		return sql
	}
	sql = strings.ReplaceAll(sql, "storageapi.", n.schema+".")
	return strings.ReplaceAll(sql, "exists storageapi", "exists "+n.schema)
}
