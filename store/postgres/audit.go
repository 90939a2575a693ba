package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
)

// An entryRow is an element of the JSON list in which statements receive audit entries.
type entryRow struct {
	Account    string    `json:"account"`
	ID         string    `json:"id"`
	Pending    bool      `json:"pending"`
	At         time.Time `json:"at"`
	Action     string    `json:"action"`
	TargetKind string    `json:"target_kind"`
	TargetID   string    `json:"target_id"`
	Fields     []byte    `json:"fields"` // packed
	Routine    bool      `json:"routine"`
	StoredAt   time.Time `json:"stored_at,omitzero"` // zero means now

	Reason string    `json:"reason"`
	Until  time.Time `json:"until,omitzero"`
	Place  int       `json:"place"` // 1 + the index of the entry's health change; 0 means none
}

func rowOfAuditEntry(n *audit.Entry) entryRow {
	return entryRow{
		Account: n.Account, ID: n.ID, Pending: n.Pending, At: utc(n.At), Action: string(n.Action), TargetKind: string(n.Target.Kind), TargetID: n.Target.ID,
		Fields: packed((*listed.AuditEntry)(n), nil), Routine: n.Routine(), Reason: n.Reason, Until: utc(n.Until),
	}
}

const entryColumns = `account, id, pending, at, action, target_kind, target_id, fields`

// A packedEntry scans the packed fields of an audit entry.
type packedEntry audit.Entry

func (n *packedEntry) ScanBytes(packed []byte) error {
	walk := fields.Unpacker(string(packed))
	for walk.More() {
		(*listed.AuditEntry)(n).Fields(&walk)
	}
	return walk.Err()
}

var (
	addAuditEntries  = query("add_audit_entries")
	lockAuditedKeys  = query("lock_audited_keys")
	pendingAccounts  = query("pending_accounts")
	listAuditEntries = query("list_audit_entries")
	lastAuditEntry   = query("last_listed_audit_entry")

	// Lists for a single target use the index on targets.
	listAuditEntriesOfTarget = strings.Replace(listAuditEntries, `($4 = '' or target_kind = $4)`, `target_kind = $4 and target_id = $9`, 1)
	lastAuditEntryOfTarget   = strings.Replace(lastAuditEntry, `order by`, `and target_kind = $4 and target_id = $5 order by`, 1)
)

// listOf encodes audit entries as the JSON list that statements receive.
func listOf(rows ...entryRow) (string, error) {
	if rows == nil {
		rows = []entryRow{}
	}
	text, err := json.Marshal(rows)
	return string(text), err
}

// queueAuditEntry adds the statement that stores an audit entry, unless it is zero. The batch's
// transaction must have locked the entry's target.
func (s *Store) queueAuditEntry(batch *pgx.Batch, n audit.Entry) error {
	if n.IsZero() {
		return nil
	}
	return s.queueAuditEntries(batch, rowOfAuditEntry(&n))
}

// queueAuditEntries adds the statement that stores audit entries, if any.
func (s *Store) queueAuditEntries(batch *pgx.Batch, rows ...entryRow) error {
	list, err := listOf(rows...)
	if err == nil && len(rows) > 0 {
		batch.Queue(s.sql(addAuditEntries), list, "")
		s.queueTrim(batch, rows)
	}
	return err
}

// trimEvery is the average number of new routine audit entries of an account between two trims. A
// trim of [audit.MaxRoutine] entries takes a millisecond.
const trimEvery = 64

// queueTrim occasionally adds the statements that remove old routine audit entries of accounts with
// new ones.
func (s *Store) queueTrim(batch *pgx.Batch, added []entryRow) {
	queued := make(map[string]bool)
	for i := range added {
		if n := &added[i]; n.Routine && !queued[n.Account] && rand.IntN(trimEvery) == 0 {
			queued[n.Account] = true
			batch.Queue(s.sql(trimAuditEntries), n.Account, audit.MaxRoutine)
		}
	}
}

// tell stores an audit entry, unless it is zero. The transaction must have locked the entry's
// target.
func (s *Store) tell(ctx context.Context, tx pgx.Tx, n audit.Entry) error {
	batch := &pgx.Batch{}
	if err := s.queueAuditEntry(batch, n); err != nil || batch.Len() == 0 {
		return err
	}
	return tx.SendBatch(ctx, batch).Close()
}

// AddAuditEntries implements [audit.Store]. It returns [ErrClock] if an entry reports an expiring
// key and this node's clock is wrong, since the node cannot know which keys are about to expire.
func (s *Store) AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error) {
	var rows []entryRow
	for i := range list {
		if !list[i].IsZero() {
			rows = append(rows, rowOfAuditEntry(&list[i]))
		}
	}
	if slices.ContainsFunc(list, func(n audit.Entry) bool { return n.Action == audit.KeyExpiring }) {
		if err := s.checkClock(ctx); err != nil {
			return 0, err
		}
	}
	text, err := listOf(rows...)
	if err != nil {
		return 0, err
	}
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(lockAuditedKeys), text)
		batch.Queue(s.sql(addAuditEntries), text, string(audit.KeyExpiring)).QueryRow(func(row pgx.Row) error { return row.Scan(&added) })
		s.queueTrim(batch, rows)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, err
	}
	return added, nil
}

// entriesLookedAt is the maximum number of audit entries that are examined for one page.
const entriesLookedAt = 10_000

// entryFields are the scan targets of number and entryColumns.
func entryFields(n *audit.Numbered) []any {
	m := &n.Entry
	return []any{&n.Number, &m.Account, &m.ID, &m.Pending, (*instant)(&m.At), &m.Action, &m.Target.Kind, &m.Target.ID, (*packedEntry)(m)}
}

func scanAuditEntry(row pgx.Row) (n audit.Numbered, err error) {
	err = row.Scan(entryFields(&n)...)
	return n, err
}

// ListAuditEntries implements [audit.Store].
func (s *Store) ListAuditEntries(ctx context.Context, account string, query audit.Query) (page audit.Page, err error) {
	kind, id := string(query.Target.Kind), query.Target.ID
	below := int64(math.MaxInt64)
	if query.After != "" {
		below, _ = positionOf(s.cursors.entries, query.After) // 0 for a cursor of another store
	}
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		page = audit.Page{}
		// least is the number of the last entry to examine. If the query has a target, only the
		// target's entries count.
		var least int64
		last, looked := lastAuditEntry, []any{account, below, entriesLookedAt - 1}
		all, args := listAuditEntries, []any{account, below, &least, kind, texts(query.Actions), stored(query.Since), stored(query.Until), query.Limit}
		if id != "" {
			last, looked = lastAuditEntryOfTarget, append(looked, kind, id)
			all, args = listAuditEntriesOfTarget, append(args, id)
		}
		err := s.planned(conn).QueryRow(ctx, s.sql(last), looked...).Scan(&least)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		list, err := rowsOf(ctx, s.planned(conn), scanAuditEntry, s.sql(all), args...)
		if err != nil {
			return err
		}
		for i := range list {
			page.Entries = append(page.Entries, list[i].Entry)
		}
		next := least
		if len(list) == query.Limit { // if none follow, the next page is empty
			next = int64(list[query.Limit-1].Number)
		}
		if next > 0 {
			page.Next = s.cursors.entries.Encode(uint64(next))
		}
		return nil
	})
	if err != nil {
		return audit.Page{}, err
	}
	return page, nil
}

// PendingAccounts implements [audit.Store].
func (s *Store) PendingAccounts(ctx context.Context, after string, limit int) ([]string, error) {
	return collect(ctx, s, scan[string], pendingAccounts, after, limit)
}

// PendingAuditEntries implements [audit.Store].
func (s *Store) PendingAuditEntries(ctx context.Context, account string, limit int) ([]audit.Numbered, error) {
	return collect(ctx, s, scanAuditEntry, `select number, `+entryColumns+` from storageapi.audit where pending and account = $1 order by number limit $2`, account, limit)
}

// TakeAuditEntries implements [audit.Store].
func (s *Store) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	list := make([]int64, len(numbers))
	for i, number := range numbers {
		list[i] = int64(number)
	}
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(`update storageapi.audit set pending = false where pending and number = any($1::bigint[])`), list)
		return err
	})
}

// LeaseAudit implements [audit.Store]. Leases end by the confirmed clock, which normally goes back
// by less than 5 minutes. So if a stored lease would end more than 5 minutes later than a new one,
// it was written while the clock was ahead, and counts as over.
func (s *Store) LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
	if err := s.keepObserving(ctx); err != nil {
		return false, err
	}
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if ttl <= 0 {
			held = false
			_, err := tx.Exec(ctx, s.sql(`delete from storageapi.audit_lease where holder = $1`), holder)
			return err
		}
		leased, err := tx.Exec(ctx, s.sql(`
			insert into storageapi.audit_lease as l (holder, until) values ($1, `+confirmedNow+` + $2 * interval '1 microsecond')
			on conflict (one) do update set holder = excluded.holder, until = excluded.until
			where l.holder = excluded.holder or l.until <= `+confirmedNow+` or l.until > excluded.until + interval '5 minutes'`), holder, ttl.Microseconds())
		held = err == nil && leased.RowsAffected() > 0
		return err
	})
	return held && err == nil, err
}
