package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

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

// A migration brings a schema to its version. What was applied somewhere is never
// changed any more: nodes compare its checksum.
type migration struct {
	version int
	text    string // in the schema storageapi
	sum     [sha256.Size]byte
}

// allMigrations returns all migrations, oldest first.
func allMigrations() (list []migration) {
	files, _ := fs.Glob(migrations, "migrations/*.sql") // in the order of their names
	for i, name := range files {
		text, _ := migrations.ReadFile(name)
		list = append(list, migration{i + 1, string(text), sha256.Sum256(text)})
	}
	return list
}

// firstNoted is the version that sums are noted from: with it those before are, too.
const firstNoted = 2

// statements returns those of each migration, which are to be a transaction.
func statements(n names) (list []string) {
	known := allMigrations()
	for _, m := range known {
		if m.version >= firstNoted {
			for _, applied := range known[:m.version] {
				m.text += fmt.Sprintf("update storageapi.versions set checksum = decode('%x', 'hex') where version = %d and checksum is null;\n", applied.sum, applied.version)
			}
		}
		list = append(list, n.in(m.text))
	}
	return list
}

// SQL returns the statements that bring an empty database to each version, oldest
// first, for hosts that apply them with a tool of their own. Each notes its version
// and its checksum in the table versions, is to be a transaction, and to be applied as
// it is, but for the first line of the first: it creates the schema, and is left out where
// the role may not create any and owns one that is there. The role should not have the
// schema's name, see [Migrate].
func SQL(options ...Option) []string {
	o := optionsOf(options)
	list := statements(o.names)
	list[0] = "create schema if not exists " + o.names.quoted() + ";\n" + list[0]
	return list
}

// Migrate brings the schema to this version, and creates it if it is not there, for
// which the role must be allowed to create schemas: otherwise one that it owns must be
// there. It may run on many nodes at once: one does the work while the others wait. Each
// version is applied in a transaction of its own. A schema of a newer version, or with
// other migrations than ours, is refused with [ErrSchema]. After an error some versions
// may have been applied, and none by half: call it again.
//
// A role whose name is that of the schema has it in its search_path as "$user", as soon
// as it is there: Migrate, when it creates one, takes that out of the role's search_path
// in this database, and closes idle connections of the pool. So the host's tables stay
// where they were and are looked for there.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options ...Option) error {
	o := optionsOf(options)
	if err := o.check(); err != nil {
		return err
	}
	steps := statements(o.names)
	short, cancel := within(ctx, patience)
	defer cancel()
	ctx, cancel = within(ctx, migrating)
	defer cancel()
	version, err := versionOf(short, pool, o)
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
	if err == nil {
		err = lookElsewhere(ctx, pool, o)
	}
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", o.schema, failure(ctx, err))
	}
	return nil
}

// migrating is how long Migrate takes at most, without a deadline, once there was an
// answer: another node may be at it.
const migrating = 5 * time.Minute

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
	if version == 0 {
		if err := createSchema(ctx, tx, o); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, step)
	return err
}

// createSchema creates the schema, unless it is there, and sees to it that names of the
// host's that do not say a schema are not looked for in it.
func createSchema(ctx context.Context, tx pgx.Tx, o *options) error {
	var exists, named bool
	var role, database, path string
	err := tx.QueryRow(ctx, `
		select exists (select from pg_namespace where nspname = $1), session_user = $1 and current_user = $1,
			current_user::text, current_database()::text, current_setting('search_path')`, o.schema).
		Scan(&exists, &named, &role, &database, &path)
	if err != nil || exists {
		return err
	}
	if _, err := tx.Exec(ctx, `create schema `+o.names.quoted()); err != nil {
		return err
	}
	others := slices.DeleteFunc(strings.Split(path, ","), func(part string) bool {
		part = strings.TrimSpace(part)
		return part == `"$user"` || part == `$user`
	})
	if without := strings.TrimSpace(strings.Join(others, ",")); named && without != path {
		if _, err := tx.Exec(ctx, `select set_config('search_path', $1, true)`, without); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `alter role `+pgx.Identifier{role}.Sanitize()+` in database `+pgx.Identifier{database}.Sanitize()+` set search_path from current`)
	}
	return err
}

// lookElsewhere closes idle connections of the pool that look into the schema because
// its name is their role's: they may be older than the schema.
func lookElsewhere(ctx context.Context, pool *pgxpool.Pool, o *options) error {
	var looks bool
	err := pool.QueryRow(ctx, `select current_user = $1 and $1 = any(current_schemas(false))`, o.schema).Scan(&looks)
	if looks {
		pool.Reset()
	}
	return err
}

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// versionOf returns the version that the schema has: 0 if it is not there. One that
// is newer than this package is an error, and so is one that came about by other
// migrations.
func versionOf(ctx context.Context, db querier, o *options) (version int, err error) {
	var table *string
	if err := db.QueryRow(ctx, `select to_regclass($1)::text`, o.names.in(`storageapi.versions`)).Scan(&table); err != nil || table == nil {
		return 0, err
	}
	err = db.QueryRow(ctx, o.names.in(`select coalesce(max(version), 0) from storageapi.versions`)).Scan(&version)
	known := allMigrations()
	if err == nil && version > len(known) {
		return version, fmt.Errorf("%w: it is of version %d, newer than %d", ErrSchema, version, len(known))
	}
	if err != nil || version < firstNoted {
		return version, err
	}
	rows, err := db.Query(ctx, o.names.in(`select version, checksum from storageapi.versions`))
	if err != nil {
		return version, err
	}
	var number int
	var sum []byte
	sums := make(map[int][]byte)
	if _, err := pgx.ForEachRow(rows, []any{&number, &sum}, func() error { sums[number] = bytes.Clone(sum); return nil }); err != nil {
		return version, err
	}
	for _, m := range known[:version] {
		if !bytes.Equal(sums[m.version], m.sum[:]) {
			return version, fmt.Errorf("%w: its migration %d has the checksum %x, and must have %x: the schema was made by other statements", ErrSchema, m.version, sums[m.version], m.sum)
		}
	}
	return version, nil
}

// checkSchema refuses a schema that was not migrated to this version.
func checkSchema(ctx context.Context, pool *pgxpool.Pool, o *options) error {
	version, err := versionOf(ctx, pool, o)
	if want := len(allMigrations()); err == nil && version != want {
		err = fmt.Errorf("%w: it is of version %d, and must be brought to %d by Migrate", ErrSchema, version, want)
	}
	if err != nil {
		return fmt.Errorf("schema %s: %w", o.schema, err)
	}
	return nil
}

// names puts tables into the schema that the host has chosen: in statements it is
// written storageapi, and never in a literal.
type names struct{ schema string } // quoted; empty: as written

func (n names) quoted() string { return cmp.Or(n.schema, DefaultSchema) }

func (n names) in(sql string) string {
	if n.schema == "" {
		return sql
	}
	return strings.ReplaceAll(sql, "storageapi.", n.schema+".")
}
