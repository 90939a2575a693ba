package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// What is particular to plain PostgreSQL stands in this file: settings of sessions and of the
// planner, notifications, what tells transactions and where rows are. All other statements are
// SQL that engines have, too, which speak PostgreSQL's protocol: internal/cockroach reads them
// with the parser of one, and knows their functions. Migrations are exempt: another engine needs
// its own.

// A plan made while tables were empty, with sequential scans, stays in use until the server
// analyzes the tables, minutes after they have filled. So plans with sequential scans are
// switched off: once for connections of our own, and with each statement, in the same round
// trip, for those of the host. (Statements in the host's transactions are planned with its
// settings.) Such plans look costly, so JIT compilation, which takes a second, is off too.
const (
	ownPlans  = `select set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)`
	lookUp    = `select ` + indexOnly
	indexOnly = `set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`
)

// For that reason long statements start from their parameters and never scan a whole table; one
// plan fits all cases and is made once. Where one deletes or updates what a part of it has found, it
// compares the first column of the index as `= any(array[…])`: by equality alone it may be joined the
// other way around, with all that is in the index, and a range of rows, `(a, b) between …`, is read to
// the end of the first column's value. Short statements have their arrays by `(select $1)`: the planner
// sees how long an array is, and finds a plan for one element so cheap that it makes one with each
// call, which takes longer than to run it. Lists of events are read in order without sorting (inOrder): by
// the index that begins with them, however cheap another one looks. What deferred precedes need not
// survive a crash of the database.
const (
	plain    = lookUp + `, set_config('plan_cache_mode', 'force_generic_plan', true), ` + probed
	indexed  = plain + `, set_config('enable_bitmapscan', 'off', true), set_config('enable_hashagg', 'off', true)`
	inOrder  = lookUp + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_sort', 'off', true)`
	deferred = `select set_config('synchronous_commit', 'off', true)`

	deferredLookUp = deferred + `, ` + indexOnly
)

// inBatch are the settings of a batch of events, lookUpSoon those of an event that is stored alone. A
// transaction of the host may have published one of the events, and the others must not wait for
// it: so they wait for no lock long.
const (
	inBatch    = plain + `, ` + soon
	lookUpSoon = lockSoon + `, ` + indexOnly
	lockSoon   = `select ` + soon
	soon       = `set_config('lock_timeout', '100ms', true)`
)

// lookUpOwners are the settings of changes of nodes and owners. A node that waited longer for a lock
// could miss its heartbeats.
const lookUpOwners = `select set_config('lock_timeout', '1s', true), ` + indexOnly

// serverStart tells when the server was started, or began anew, with statistics and numbers of
// transactions, because one of its processes had crashed.
const serverStart = `select greatest(pg_postmaster_start_time(), (select stats_reset from pg_stat_archiver))`

// forgetForeign deletes changes by transactions that this server knows nothing of, though it finds
// what they did, and has no changes before a mark of theirs: they are from where a dump was made.
const forgetForeign = `
	with here as (
		select pg_snapshot_xmin(s)::text::bigint as oldest, pg_snapshot_xmax(s)::text::bigint as next,
			array(select x::text::bigint from pg_snapshot_xip(s) x) as running
		from pg_current_snapshot() s
	), gone as (
		delete from storageapi.changes c using here h where c.added >= h.oldest and (c.added >= h.next or c.added = any(h.running))
	)
	update storageapi.marks m set event = 0 from here h where m.name = 'changes' and m.event > h.next`

// A node that loses power or hangs in the middle of a transaction must not keep its locks: the
// server ends its session. The first setting counts from the server's last answer; the others
// detect within 5 s and some probes that a node is gone in the middle of a batch.
const (
	unidle = `set_config('idle_in_transaction_session_timeout', '5s', true)`
	probed = `set_config('tcp_keepalives_idle', '5', true), set_config('tcp_keepalives_interval', '1', true)`
)

var (
	// transaction is how transactions begin: in one round trip.
	transaction = pgx.TxOptions{BeginQuery: `begin; select ` + unidle + `, ` + probed + `, ` + indexOnly}

	// snapshot is how a page of an export is read: all of one moment, and by indexes.
	snapshot = pgx.TxOptions{BeginQuery: `begin isolation level repeatable read, read only; ` + indexed + `, ` + unidle}
)

// openPublications is the least number that an event may have whose transaction is open:
// such a transaction has a lock on the table $1. It is 0 if that cannot be known, of a session of
// another role or without track_activities, or of a transaction that is prepared.
const openPublications = `
	select min(case
		when a.state is null or a.state = 'disabled' then 0
		when a.xact_start is not null then (extract(epoch from a.xact_start - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096
	end)
	from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'relation' and l.relation = $1::text::regclass and l.mode = 'RowExclusiveLock'
		and l.database = (select oid from pg_database where datname = current_database())`

// Slots of ids, of the table $1. A transaction that adds ids has a lock on it before it looks at the
// slots. One that is prepared may bear another name since, so it is waited for in any case.
const (
	// The current slot, the last that has begun and the first that is not sealed; since when the
	// last is, and the number of an event now; whether transactions were noted that were adding ids,
	// and whether they have ended; the slots that have no table yet, up to the one after the current;
	// and the first slot, if all its events are before the mark. To the last two ids may be added.
	slotsNow = `
		select c.last_value::integer, last.slot, (select min(slot) from storageapi.id_slots where not sealed), last.since, (` + eventClock + `), last.open is not null,
			not exists (select` + holdsTable + ` and (l.pid is null or l.virtualtransaction = any(last.open))),
			array(select no from generate_series(last.slot, c.last_value::integer + 1) no where to_regclass($1::text || '_' || no) is null),
			(select slot from storageapi.id_slots where sealed and slot < last.slot - 1 and slot = (select min(slot) from storageapi.id_slots)
				and below <= (select event from storageapi.marks where name = 'ids'))
		from storageapi.id_slot c cross join (select slot, since, open from storageapi.id_slots order by slot desc limit 1) last`
	noteOpen   = `update storageapi.id_slots set open = ` + addingIDs + ` where slot = $2`
	beginSlots = `insert into storageapi.id_slots (slot, since, open) select no, $4, ` + addingIDs + ` from generate_series($2::integer, $3::integer) no`

	addingIDs  = `array(select distinct l.virtualtransaction` + holdsTable + `)`
	holdsTable = ` from pg_locks l
	where l.locktype = 'relation' and l.relation = $1::text::regclass and l.mode = 'RowExclusiveLock' and l.granted
		and l.database = (select oid from pg_database where datname = current_database())`
)

func slotTable(no int) string { return fmt.Sprint("event_ids_", no) }

// makeSlot makes the table of a slot of ids, and attachSlot adds it, for which nobody waits.
func makeSlot(no int) string {
	return fmt.Sprintf(`create table storageapi.%s (like storageapi.event_ids including all)`, slotTable(no))
}

func attachSlot(no int) string {
	return fmt.Sprintf(`alter table storageapi.event_ids attach partition storageapi.%s for values in (%d)`, slotTable(no), no)
}

// notifies sends the text $2 to those who listen on the channel $1.
const notifies = `select pg_notify($1, $2)`

// notifiesAll sends the texts $2 to those who listen on the channels $1.
const notifiesAll = `select pg_notify(channel, payload) from unnest($1::text[], $2::text[]) as h (channel, payload)`

// listensOn has a connection listen on a channel.
func listensOn(channel string) string { return `listen ` + pgx.Identifier{channel}.Sanitize() }

// These read a snapshot, which says of each transaction whether its changes were seen.
var (
	changesSince    = query("changes_since")
	pendingOfShards = query("pending_of_shards")
)

// Parts of tables. Whoever makes or drops one keeps all others from the table, and waits for them
// a moment only, for they wait behind it. Names are of this package.
const (
	oftenVacuumed = ` with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false)`

	pastParts = `
		with gone as (delete from storageapi.partitions where kind = $1 and below <= $2 returning name)
		select array_agg(name) from gone`
	notePart = `insert into storageapi.partitions (kind, least, below, name) values ($1, $2, $3, $4)`
)

// partsNow selects the number of an event now, the earliest of the marks $2, where the first part of
// the table $1 ends, and its last, and the last number in its default part, 0 if that is empty.
func partsNow(t *partedTable) string {
	return fmt.Sprintf(`
		select (extract(epoch from clock_timestamp() - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096,
			(select min(event) from storageapi.marks where name = any($2::text[])), coalesce(min(below), 9223372036854775807), coalesce(max(below), 0),
			coalesce((select event from storageapi.%s_default order by %s desc limit 1), 0)
		from storageapi.partitions where kind = $1`, t.name, t.order)
}

func lockParts(t *partedTable) string {
	return `lock table only storageapi.` + t.name + ` in access exclusive mode`
}

func dropPart(name string) string { return `drop table storageapi.` + name }

func makePart(t *partedTable, name string, from, below int64) string {
	return fmt.Sprintf(`create table storageapi.%s partition of storageapi.%s for values from (%d) to (%d)%s`, name, t.name, from, below, t.with)
}

// makeRest makes the default part of a table, and indexRest its index by number.
func makeRest(t *partedTable) string {
	return fmt.Sprintf(`create table storageapi.%s_default partition of storageapi.%[1]s default%s`, t.name, t.with)
}

func indexRest(t *partedTable) string {
	return fmt.Sprintf(`create index on storageapi.%s_default ((%s))`, t.name, t.order)
}
