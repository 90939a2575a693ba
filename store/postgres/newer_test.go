package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// Another node migrates the schema to a version that a running node does not know. The running node
// must not treat a delivery without a payload as damaged, because the newer schema may store the
// payload elsewhere.
func TestClaim_PayloadNotFoundInANewerSchema_IsUnsupported(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	endpoints(t, s, 2)
	claim := func(account string) storetest.Task {
		t.Helper()
		publishTo(t, s, account, "event of "+account)
		execOn(t, pool(t), `delete from `+quoted(name)+`.event_bodies`)
		tasks := claimed(t, s)
		if len(tasks) != 1 {
			t.Fatalf("claimed %d, want 1", len(tasks))
		}
		return tasks[0]
	}
	if task := claim("acct_wh_000000"); task.Err == nil || errors.Is(task.Err, errors.ErrUnsupported) {
		t.Errorf("Task.Err in a schema that the node knows = %v, want an error that is not ErrUnsupported", task.Err)
	}
	execOn(t, pool(t), `insert into `+quoted(name)+`.versions (version, oldest) values (99, 1)`)
	if task := claim("acct_wh_000001"); !errors.Is(task.Err, errors.ErrUnsupported) {
		t.Errorf("Task.Err in a newer schema = %v, want ErrUnsupported", task.Err)
	}
}

// A node without a Sealer reports that it cannot open a secret that another node has sealed, so
// that the delivery waits.
func TestClaim_SecretSealedByAnotherNode_IsErrSealed(t *testing.T) {
	option := inSchema(t)
	s := open(t, option)
	endpoints(t, s, 1)
	if n := len(claimed(t, s)); n != 0 {
		t.Fatalf("claimed %d, want none", n)
	}
	open(t, option, postgres.Sealed(keyring(t, 1)))
	publishTo(t, s, "acct_wh_000000", "event")
	task := claimed(t, s)[0]
	if !errors.Is(task.Err, signing.ErrSealed) {
		t.Errorf("Task.Err = %v, want ErrSealed", task.Err)
	}
	if stale, err := storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{{Task: task, Effect: storetest.Postpone, RetryAfter: time.Hour}}); err != nil || len(stale) > 0 {
		t.Errorf("Settle = %v, %v", stale, err)
	}
	if n := len(claimed(t, s)); n != 0 {
		t.Errorf("claimed %d again within the hour, want none", n)
	}
}
