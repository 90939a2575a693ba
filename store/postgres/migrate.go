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
// first, for hosts that apply them with a tool of their own, which then also keeps
// the table of versions: see [Migrate].
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
// version is applied in a transaction of its own and noted in the table versions.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options ...Option) error {
	o := optionsOf(options)
	for done := false; !done; {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			done, err = migrateOnce(ctx, tx, o)
			return err
		})
		if err != nil {
			return fmt.Errorf("migrate schema %s: %w", o.schema, err)
		}
	}
	return nil
}

// migrateOnce applies the next version, if there is one. Who comes second waits for
// the lock, and then sees what the first has done.
func migrateOnce(ctx context.Context, tx pgx.Tx, o *options) (done bool, err error) {
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, "storageapi migrate "+o.schema); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, o.names.in(`create schema if not exists storageapi`)); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, o.names.in(`create table if not exists storageapi.versions
		(version integer primary key, applied_at timestamptz not null default clock_timestamp())`)); err != nil {
		return false, err
	}
	version, err := versionOf(ctx, tx, o)
	steps := SQL(InSchema(o.schema))
	switch {
	case err != nil:
		return false, err
	case version > len(steps):
		return false, fmt.Errorf("%w: it is of version %d, newer than %d", ErrSchema, version, len(steps))
	case version == len(steps):
		return true, nil
	}
	if _, err := tx.Exec(ctx, steps[version]); err != nil {
		return false, fmt.Errorf("version %d: %w", version+1, err)
	}
	_, err = tx.Exec(ctx, o.names.in(`insert into storageapi.versions (version) values ($1)`), version+1)
	return false, err
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func versionOf(ctx context.Context, db querier, o *options) (version int, err error) {
	err = db.QueryRow(ctx, o.names.in(`select coalesce(max(version), 0) from storageapi.versions`)).Scan(&version)
	return version, err
}

// checkSchema refuses a schema that was not migrated to this version.
func checkSchema(ctx context.Context, pool *pgxpool.Pool, o *options) error {
	version, err := versionOf(ctx, pool, o)
	if code(err) == undefinedTable {
		return fmt.Errorf("%w: %s has no table versions: call Migrate first", ErrSchema, o.schema)
	}
	if want := len(SQL()); err == nil && version != want {
		return fmt.Errorf("%w: %s is of version %d, this is %d", ErrSchema, o.schema, version, want)
	}
	return err
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
