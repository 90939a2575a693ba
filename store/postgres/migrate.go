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
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrSchema is wrapped by the errors of [Migrate] and [New] if this version cannot use the schema:
// because it was created before 0.1.0 or by other statements, or needs a newer version of this
// package. New also returns it if the schema must be migrated first.
var ErrSchema = errors.New("schema not supported by this version")

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultSchema is the schema of the tables unless [InSchema] selects another.
const DefaultSchema = "storageapi"

// A migration upgrades a schema to version. A released migration must never change: nodes compare
// its checksum.
//
// Each migration records the oldest version that can use the result. A migration that expands the
// schema keeps the previous value, so older nodes keep running and can start. A migration that
// contracts the schema removes something that older versions use. It records the first version that
// does not use it, and must be released after that version.
//
// Nodes use the tables during a migration. Alter only one table in a migration, and never read or
// write all of it. New columns of a table that older nodes write to must be nullable, and their
// names must be unique among all columns.
type migration struct {
	version int
	text    string // for the schema storageapi
	sum     [sha256.Size]byte
}

// allMigrations returns all migrations, oldest first.
var allMigrations = sync.OnceValue(func() (list []migration) {
	files, _ := fs.Glob(migrations, "migrations/*.sql") // in the order of their names
	for i, name := range files {
		text, _ := migrations.ReadFile(name)
		list = append(list, migration{i + 1, string(text), sha256.Sum256(text)})
	}
	return list
})

// statements returns the statements of each migration; each element must run in one transaction.
func statements(known []migration, n names) (list []string) {
	for _, m := range known {
		list = append(list, n.in(m.text+fmt.Sprintf("update storageapi.versions set checksum = decode('%x', 'hex') where version = %d;\n", m.sum, m.version)))
	}
	return list
}

// SQL returns the statements that bring an empty database to each version, oldest first, for hosts
// that apply them with their own tool. Apply each element unchanged, in its own read committed
// transaction; it records its version and checksum in the table versions. Set lock_timeout to less
// than a second, as [Migrate] does, and repeat a transaction that fails because of it. If the role
// owns an existing schema, you may omit the first line of the first element, which creates the
// schema. The role should not have the schema's name, see [Migrate].
func SQL(options ...Option) []string {
	o := optionsOf(options)
	list := statements(o.migrations, o.names)
	list[0] = "create schema if not exists " + o.names.quoted() + ";\n" + list[0]
	return list
}

// Migrate brings the schema to this version. It creates the schema if it does not exist, which
// requires the right to create schemas. It may run on many nodes at once: one does the work while
// the others wait. Each version is applied in its own transaction. After an error some versions may
// have been applied, each completely: call Migrate again.
//
// Older nodes keep running meanwhile and can start afterwards, down to the oldest version that the
// schema names: see docs/format.md. Migrate does not change a newer schema that this version can
// use. It returns an error that wraps [ErrSchema] if this version is too old for the schema, or if
// the schema has other migrations, such as those from before 0.1.0.
//
// A migration waits at most half a second for a lock, since all other users of the table queue
// behind it. It is retried until the context's deadline or, without a deadline, for 5 minutes.
//
// A role with the schema's name has the schema in its search_path as "$user". When Migrate creates
// such a schema, it removes "$user" from the role's search_path in this database and closes idle
// connections of the pool, so that the host's own tables are still found.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options ...Option) error {
	o := optionsOf(options)
	if err := o.check(); err != nil {
		return err
	}
	steps := statements(o.migrations, o.names)
	short, cancel := within(ctx, defaultTimeout)
	defer cancel()
	ctx, cancel = within(ctx, migrating)
	defer cancel()
	version, err := versionOf(short, pool, o)
	for try := 1; err == nil && version < len(steps); {
		failed := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error { return apply(ctx, tx, o, steps[version], version) })
		was := version
		if version, err = versionOf(ctx, pool, o); version != was {
			continue // applied here or by another node
		}
		if code(failed) == lockNotAvailable && err == nil && wait(ctx, rand.N(time.Second)) == nil {
			continue // while this node waited, others could take the locks
		}
		// Objects that another node has just created can conflict before they are visible, and a
		// schema can be visible before this session knows it.
		if c := code(failed); try == maxTries || c != uniqueViolation && c != duplicateSchema && c != duplicateTable && c != undefinedSchema {
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

// migrating is the timeout of Migrate if its context has no deadline. It is long because another
// node may be migrating. The timeout of the first statement is defaultTimeout.
const migrating = 5 * time.Minute

// apply upgrades a schema from version to the next, unless another node has already done so. A
// second node waits for the lock and then sees the work of the first.
func apply(ctx context.Context, tx pgx.Tx, o *options, step string, version int) error {
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, "storageapi migrate "+o.schema); err != nil {
		return err
	}
	if now, err := versionOf(ctx, tx, o); err != nil || now != version {
		return err
	}
	if _, err := tx.Exec(ctx, briefly); err != nil {
		return err
	}
	if version == 0 {
		if err := createSchema(ctx, tx, o); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, step)
	return err
}

// briefly limits how long a migration waits for a table. While a long transaction, such as a
// backup, holds the table, all other users of the table queue behind the waiting migration. The
// limit is below deadlock_timeout, so that no other transaction is ended for a migration. Only the
// context limits the time of the migration itself.
const briefly = `set local lock_timeout = '500ms'; set local statement_timeout = 0`

// createSchema creates the schema unless it exists, and keeps it out of the role's search_path.
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

// lookElsewhere closes the pool's idle connections if the role has the schema's name and the schema
// is in its search_path, since these connections may be older than the schema.
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
	rowQuerier
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// versionOf returns the version of the schema, or 0 if it does not exist. It returns an error that
// wraps ErrSchema if the schema needs a newer version of this package or has other migrations.
func versionOf(ctx context.Context, db querier, o *options) (version int, err error) {
	var versions, leases *string
	if err := db.QueryRow(ctx, `select to_regclass($1)::text, to_regclass($2)::text`, o.names.in(`storageapi.versions`), o.names.in(unreleased)).
		Scan(&versions, &leases); err != nil || versions == nil {
		return 0, err
	}
	if leases != nil {
		return 0, fmt.Errorf("%w: created by an unreleased build from before 0.1.0, which no release can read; drop it, or choose another schema with InSchema", ErrSchema)
	}
	var oldest int
	err = db.QueryRow(ctx, o.names.in(`select version, oldest from storageapi.versions order by version desc limit 1`)).Scan(&version, &oldest)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	known := o.migrations
	if oldest > len(known) {
		return version, fmt.Errorf("%w: it has version %d, which requires nodes of version %d or newer, but this node is version %d; run the release that migrated it, or a newer one",
			ErrSchema, version, oldest, len(known))
	}
	var sums [][]byte
	if err := db.QueryRow(ctx, o.names.in(`select array_agg(checksum order by version) from storageapi.versions`)).Scan(&sums); err != nil {
		return version, err
	}
	// If a row is missing, the next row's sum is compared in its place, and differs.
	for i, m := range known[:min(version, len(known))] {
		if !bytes.Equal(sums[i], m.sum[:]) {
			return version, fmt.Errorf("%w: migration %d has checksum %x, want %x: the schema was created by different statements", ErrSchema, m.version, sums[i], m.sum)
		}
	}
	return version, nil
}

// unreleased is a table that only schemas from before 0.1.0 have.
const unreleased = `storageapi.leases`

// checkSchema returns an error unless the schema has this version, or a newer version that nodes of
// this version can use.
func checkSchema(ctx context.Context, pool *pgxpool.Pool, o *options) error {
	version, err := versionOf(ctx, pool, o)
	if want := len(o.migrations); err == nil && version < want {
		err = fmt.Errorf("%w: it has version %d; call Migrate to upgrade it to version %d", ErrSchema, version, want)
	}
	if err != nil {
		return fmt.Errorf("schema %s: %w", o.schema, err)
	}
	return nil
}

// names replaces the schema's name in statements. The statements call the schema storageapi, and
// never name it within a literal.
type names struct{ schema string } // quoted; empty means that statements stay as written

func (n names) quoted() string { return cmp.Or(n.schema, DefaultSchema) }

func (n names) in(sql string) string {
	if n.schema == "" {
		return sql
	}
	return strings.ReplaceAll(sql, "storageapi.", n.schema+".")
}
