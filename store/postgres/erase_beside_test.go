package postgres_test

import (
	"strings"
	"testing"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/postgres"
)

// Other calls may change or remove rows that a step of an erasure is about to delete. For example,
// they may take or purge an audit entry. The erasure must still leave no row of the account.
func TestErase_ConcurrentCalls_LeavesNothing(t *testing.T) {
	for name, other := range map[string]string{
		"taking":  `update SCHEMA.audit set pending = false where number = (select min(number) from SCHEMA.audit)`,
		"purging": `delete from SCHEMA.audit where number = (select min(number) from SCHEMA.audit)`,
	} {
		t.Run(name, func(t *testing.T) {
			option := inSchema(t)
			s := open(t, option)
			var list []audit.Entry
			for i := range 20 {
				list = append(list, entryNo(audit.TargetAccount, "", i))
			}
			if _, err := s.AddAuditEntries(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			erase := func() (erased store.Receipt, more bool, err error) { return s.EraseAccount(t.Context(), "acct", 7) }
			if _, _, err := erase(); err != nil { // closes the account
				t.Fatal(err)
			}
			tx, err := pool(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if _, err := tx.Exec(t.Context(), inSchemaOf(option, other)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				for more := true; more; {
					var err error
					if _, more, err = erase(); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			eventually(t, "the erasure waits", func() (waits bool) {
				err := pool(t).QueryRow(t.Context(), `select exists (
					select from pg_stat_activity where wait_event_type = 'Lock' and position($1 in query) > 0)`, inSchemaOf(option, "SCHEMA.audit")).Scan(&waits)
				return err == nil && waits
			})
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for table, rows := range rowsWith(t, option, "acct") {
				t.Errorf("%d rows of %s tell of the account", rows, table)
			}
		})
	}
}

// inSchemaOf returns a statement with SCHEMA replaced.
func inSchemaOf(option postgres.Option, sql string) string {
	return strings.ReplaceAll(sql, "SCHEMA", quoted(postgres.SchemaOf(option)))
}
