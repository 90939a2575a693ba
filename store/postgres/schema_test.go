package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// Migrate refuses a schema from before 0.1.0, regardless of its version, and does not change it.
func TestMigrate_SchemaFromBeforeTheFirstRelease_Refuses(t *testing.T) {
	p := pool(t)
	for _, version := range []int{1, 25} {
		name := newSchema(t)
		option := postgres.InSchema(name)
		if _, err := p.Exec(t.Context(), strings.ReplaceAll(fmt.Sprintf(`create schema {}; create table {}.leases (token bigint);
			create table {}.versions (version integer primary key); insert into {}.versions values (%d)`, version), "{}", quoted(name))); err != nil {
			t.Fatal(err)
		}
		_, newErr := postgres.New(t.Context(), p, option)
		for of, err := range map[string]error{"Migrate": postgres.Migrate(t.Context(), p, option), "New": newErr} {
			if want := "from before 0.1.0"; !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s on version %d = %v, want ErrSchema that names the schema and says %q", of, version, err, want)
			}
		}
		if tables := len(tablesIn(t, name)); tables != 2 {
			t.Errorf("the schema of version %d has %d tables afterwards, want 2", version, tables)
		}
	}
}

// A schema that has this version but was created by different statements is refused.
func TestMigrate_OtherChecksum_IsRefused(t *testing.T) {
	p := pool(t)
	for version := range len(postgres.SQL()) {
		name, option := migratedSchema(t)
		if err := postgres.Migrate(t.Context(), p, option); err != nil {
			t.Errorf("Migrate once more = %v", err)
		}
		sql := fmt.Sprintf(`update %s.versions set checksum = sha256('another') where version = %d`, quoted(name), version+1)
		if _, err := p.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		if err := postgres.Migrate(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
			t.Errorf("Migrate = %v, want ErrSchema", err)
		}
		if _, err := postgres.New(t.Context(), p, option); !errors.Is(err, postgres.ErrSchema) {
			t.Errorf("New = %v, want ErrSchema", err)
		}
	}
}

// newRole creates a role and a database, runs the given statements in the database, with {}
// replaced by the role's name, and returns connections of the role to the database.
func newRole(t *testing.T, before ...string) (p *pgxpool.Pool, role string) {
	t.Helper()
	admin := pool(t)
	role = fmt.Sprintf("role %d %d", os.Getpid(), schemas.Add(1))
	exec := func(p *pgxpool.Pool, sql string) {
		t.Helper()
		if _, err := p.Exec(context.Background(), strings.ReplaceAll(sql, "{}", quoted(role))); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	connect := func(user string) *pgxpool.Pool {
		config := admin.Config()
		config.ConnConfig.Database, config.ConnConfig.User = role, user
		p, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	exec(admin, `create role {} login`)
	t.Cleanup(func() { exec(admin, `drop role {}`) })
	exec(admin, `create database {}`)
	t.Cleanup(func() { exec(admin, `drop database {} with (force)`) })
	owner := connect(admin.Config().ConnConfig.User)
	for _, sql := range before {
		exec(owner, sql)
	}
	return connect(role), role
}

// A role that owns the schema does not need the right to create schemas.
func TestMigrate_SchemaOfAnAdministrator_Succeeds(t *testing.T) {
	for _, schema := range []string{postgres.DefaultSchema, `a'b`, `exists storageapi`} {
		p, _ := newRole(t, `create schema `+quoted(schema)+` authorization {}`)
		if _, err := p.Exec(t.Context(), `create schema more`); err == nil {
			t.Fatal("the role may create schemas")
		}
		option := postgres.InSchema(schema)
		if err := postgres.Migrate(t.Context(), p, option); err != nil {
			t.Fatal(err)
		}
		s, err := postgres.New(t.Context(), p, option)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		endpoints(t, s, 1)
		if n, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "event", Account: "acct_wh_000000", Type: alerts.TypeBalanceLow}); n != 1 || err != nil {
			t.Errorf("Enqueue = %d, %v", n, err)
		}
	}
}

// New refuses a role that cannot make and drop parts, and its error names the missing right.
func TestNew_RoleCannotPurge_ReturnsError(t *testing.T) {
	p, role := newRole(t)
	owner := "owner of " + role
	config := p.Config()
	config.ConnConfig.User = pool(t).Config().ConnConfig.User
	admin, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	do := func(statements ...string) {
		t.Helper()
		for _, sql := range statements {
			if _, err := admin.Exec(context.Background(), strings.NewReplacer("{owner}", quoted(owner), "{}", quoted(role)).Replace(sql)); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	defer func() {
		p.Close()
		do(`drop schema storageapi cascade`, `drop owned by {owner}`, `drop role {owner}`)
	}()
	do(`create role {owner}`, `create schema storageapi authorization {owner}`)
	asOwner := admin.Config()
	asOwner.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `set role `+quoted(owner))
		return err
	}
	migrating, err := pgxpool.NewWithConfig(t.Context(), asOwner)
	if err != nil {
		t.Fatal(err)
	}
	defer migrating.Close()
	if err := postgres.Migrate(t.Context(), migrating); err != nil {
		t.Fatal(err)
	}
	do(`grant usage on schema storageapi to {}`, `grant all on all tables in schema storageapi to {}`, `grant all on all sequences in schema storageapi to {}`)
	for _, step := range []struct{ want, grant string }{
		{"cannot create tables in schema", `grant create on schema storageapi to {}`},
		{"does not own the tables in schema", `grant {owner} to {}`},
	} {
		if s, err := postgres.New(t.Context(), p); err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("New = %v, %v, want an error that says %q", s, err, step.want)
		}
		do(step.grant)
	}
	s, err := postgres.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// A role that has the schema's name still creates and finds the host's tables in the same place as
// before, on existing and new connections.
func TestRole_NamedLikeSchema_KeepsItsTables(t *testing.T) {
	for path, home := range map[string]string{`"$user", public`: "public", `app, "$user",public`: "app", `"$user"`: ""} {
		p, role := newRole(t,
			`create schema app authorization {}`, `grant all on schema public to {}`, `grant create on database {} to {}`, `alter role {} set search_path = `+path)
		conns := p.AcquireAllIdle(t.Context())
		for range 3 {
			conn, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Release()
		}
		option := postgres.InSchema(role)
		if err := postgres.Migrate(t.Context(), p, option); err != nil {
			t.Fatal(err)
		}
		another, err := pgxpool.NewWithConfig(t.Context(), p.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer another.Close()
		for _, p := range []*pgxpool.Pool{p, p, p, p, another} {
			_, err := p.Exec(t.Context(), `create table if not exists keys (n integer)`)
			if home == "" { // the role had no schema for its tables
				if err == nil {
					t.Error("a table could be created with no schema to be in")
				}
				continue
			}
			var schema string
			if err == nil {
				err = p.QueryRow(t.Context(), `select relnamespace::regnamespace::text from pg_class where oid = 'keys'::regclass`).Scan(&schema)
			}
			if schema != home || err != nil {
				t.Errorf("with the search_path %s the host's table keys is in %q, %v, want %s", path, schema, err, home)
			}
		}
		s, err := postgres.New(t.Context(), p, option)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	}
}

// The schema's function shard_of and the nodes compute the same shard of an account.
func TestShardOf(t *testing.T) {
	name, _ := migratedSchema(t)
	list := []string{"a", " ", "acct_1", "é", "ß", "\u2028", "日本", "🙂", "a\u0301", "\u007f", "\U0010ffff", "\ufffd", "%s'\"$1", strings.Repeat("ü", 500)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var account []rune
		for range 1 + random.IntN(30) {
			r := rune(1 + random.IntN(utf8.MaxRune))
			if random.IntN(2) == 0 {
				r %= 0x800
			}
			if r == 0 || !utf8.ValidRune(r) {
				r = 'x'
			}
			account = append(account, r)
		}
		list = append(list, string(account))
	}
	rows, err := pool(t).Query(t.Context(), `select account, `+quoted(name)+`.shard_of(account) from unnest($1::text[]) as account`, list)
	if err != nil {
		t.Fatal(err)
	}
	var account string
	var shard int16
	seen := make(map[int16]bool)
	if _, err := pgx.ForEachRow(rows, []any{&account, &shard}, func() error {
		if want := postgres.ShardOf(account); shard != want {
			t.Errorf("shard_of(%q) = %d, want %d", account, shard, want)
		}
		seen[shard] = true
		return nil
	}); err != nil || len(seen) != 256 {
		t.Errorf("%d shards, %v, want 256", len(seen), err)
	}
}
