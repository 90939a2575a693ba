package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// What was released is never changed: nodes refuse a schema that was made by it.
func TestMigrationsStay(t *testing.T) {
	for name, want := range map[string]string{
		"0001": "5b7656d1778b5e37770899c2500df306346dac6416ef43d35a4c64cf000c001e",
		"0002": "478926de5278b63c5ae2c57704e36ae0755fb2bae615f5be061f22eafd116646",
		"0003": "29c84c7de256c20c14ff81d6eb80385760ee0a2a1d3ce88d62c8ed08f145401a",
		"0004": "16d38eb8b96da2ed5ee5f15f19223c854a3107fc17b8c30606ccf9e28e6c84dc",
		"0005": "b87f637c6f9eb7c34ddb8eb2301d390911008d5074379fc08df75e3f8f4a0442",
		"0006": "4c860b139bcf547357f1e9e77e9a57629a88649f2e7841a0b717c4e924912db4",
		"0007": "8089830b957c0a12c87bc0eb308260c001164bca03b6a3baa0e4029de5e2b3b0",
		"0008": "14276c1ed4c7608c5ef6c2e0b9878bbf52cca8d8b660d4d2e85fdd8010d7769c",
		"0009": "ab729cbe9251077e1861334803972ef830d3c8ea8991af5a01cdc8aa61128f7f",
		"0010": "5fc07ebf5831875275b089e42b7b3ccf024f8540d215a3d74307f0735fab1ff0",
		"0011": "087c265b22a68b34b82b9120d1daac5dfd77144dd63301bdcd4a3c1bbfd002c0",
		"0012": "3687e75514eaba2da46ffa4e43e492ec614144b0a3f352de5d54326d89342aca",
		"0013": "987e354d0f06b1ecd85edfc65905d3de5e5fe4642823031f880ad185b4a99f22",
		"0014": "799807a49eaf9f6db044541dc80cf4d8f787147d7e9825da5ab99f1e2853be86",
		"0015": "c079d2c062e1c5a758b856f92affff7e3ee424c02a31bff9f589126b7ef5d278",
		"0016": "83b7b909728ce4376269e7bf2a256b2fa3bc2db1bfec6286ee584e6d903f89e7",
		"0017": "1fe56d35533621ef296f3a53cd1a13cdabe277be6f37fa29e3d49288e714a787",
		"0018": "b8c9aed247e83cf84802150ca59018c55fa20eb06f475ee86877ecc24d8c3b70",
	} {
		text, err := os.ReadFile("migrations/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != want {
			t.Errorf("migration %s has the checksum %s, want %s: add another instead", name, got, want)
		}
	}
}

// A schema that was made by other statements of the same version is refused.
func TestChecksumRefused(t *testing.T) {
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

// newRole returns connections of a role of its own, which may log in, to a database of its
// own, in which the statements were run before: {} in them is the role's name.
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

// A role that owns the schema need not be allowed to create any.
func TestMigrateAnAdministratorsSchema(t *testing.T) {
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
		if n, err := s.Enqueue(t.Context(), webhooks.EncodedEvent{ID: "event", Account: "acct_wh_000000", Type: webhooks.TypeBalanceLow}); n != 1 || err != nil {
			t.Errorf("Enqueue = %d, %v", n, err)
		}
	}
}

// A role that bears the name of the schema has its tables where it had them before, and
// finds them, on connections that it has and on new ones.
func TestRoleOfTheSchemasName(t *testing.T) {
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
			if home == "" { // the role had nowhere to put it
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
