package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// This file has the code that depends on PostgreSQL's internals: settings of sessions and of the
// planner, notifications, transaction snapshots, locks and row locations.

// A plan made while tables were empty, with sequential scans, stays in use until the server
// analyzes the tables, minutes after they have filled. So sequential scans are off (lookUp). Plans
// without sequential scans look costly, so JIT compilation, which takes a second, is off too.
//
// For the same reason, long statements start from their parameters, never scan a whole table, and
// have a single plan, made once, that fits all cases (indexed). A delete or update of rows that a
// subquery found compares the first column of the index as `= any(array[…])`. With plain equality
// the planner may join in the other direction and read the whole index. With a row range, `(a, b)
// between …`, it reads all rows with the first column's value. Short statements read their arrays
// as `(select $1)`, which hides the length of the array. Otherwise the planner finds a plan for one
// element so cheap that it plans on each call, and planning takes longer than running.
//
// A node that loses power or hangs inside a transaction must not keep its locks, so the server ends
// its session (indexed). idle_in_transaction_session_timeout counts from the server's last answer.
// If a node disappears in the middle of a batch, the TCP keepalive settings detect this within 5 s
// and a few probes.
//
// The connections of the pool of [Open] have all these settings from the start. On other
// connections, each statement or transaction is preceded by its settings in the same round trip.
// Short statements are preceded only by lookUp, because all settings together would make the lookup
// of a key a tenth slower. Statements in the host's transactions are planned with the host's
// settings.
const (
	lookUp  = `set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`
	indexed = lookUp + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_bitmapscan', 'off', true), ` +
		`set_config('enable_hashagg', 'off', true), set_config('idle_in_transaction_session_timeout', '5s', true), ` +
		`set_config('tcp_keepalives_idle', '5', true), set_config('tcp_keepalives_interval', '1', true)`

	begin = `begin; select ` + indexed
)

// Additional settings of some statements.
const (
	// inOrder makes the planner read a list through the index that has its order, even if another
	// index looks cheaper.
	inOrder = `set_config('enable_sort', 'off', true)`
	// lockBriefly limits the wait for transactions that hold a lock for long, such as a transaction
	// of the host that has published the same event.
	lockBriefly = `set_config('lock_timeout', '100ms', true)`
	// lockSoon limits a node's own steps: a node that waits longer could miss its heartbeats.
	lockSoon = `set_config('lock_timeout', '1s', true)`
	// deferred is for steps that need not survive a crash of the database.
	deferred = `set_config('synchronous_commit', 'off', true)`
)

// ownSettings are the settings of the connections of our own pool.
var ownSettings = set(strings.ReplaceAll(indexed, `true)`, `false)`))

// set returns the statement that sets settings.
func set(settings ...string) string { return `select ` + strings.Join(settings, ", ") }

// settings returns the statement that sets the settings base, either lookUp or indexed, and the
// settings more. It omits base for our own pool, whose connections already have both. The result
// may be empty.
func (s *Store) settings(base string, more ...string) string {
	if !s.options.ownPool {
		more = append([]string{base}, more...)
	}
	if len(more) == 0 {
		return ""
	}
	return set(more...)
}

// serverStart selects the time of the server's last start. It also detects a restart after a crash
// of a server process, which begins new statistics and transaction numbers.
const serverStart = `select greatest(pg_postmaster_start_time(), (select stats_reset from pg_stat_archiver))`

// forgetForeign deletes changes whose transactions are unknown to this server although their
// effects are visible, and resets the trim mark if it is ahead of this server. Such rows come from
// the server where a restored dump was made.
const forgetForeign = `
	with here as (
		select pg_snapshot_xmin(s)::text::bigint as oldest, pg_snapshot_xmax(s)::text::bigint as next,
			array(select x::text::bigint from pg_snapshot_xip(s) x) as running
		from pg_current_snapshot() s
	), gone as (
		delete from storageapi.changes c using here h where c.added >= h.oldest and (c.added >= h.next or c.added = any(h.running))
	)
	update storageapi.marks m set event = 0 from here h where m.name = 'changes' and m.event > h.next`

// exportSnapshot begins the transaction of an export page, which has one snapshot and reads through
// indexes.
var exportSnapshot = pgx.TxOptions{BeginQuery: `begin isolation level repeatable read, read only; select ` + indexed}

// openPublications selects the lowest event number that an open publishing transaction may have
// used. Such a transaction holds a lock on the table $1. The result is 0 if the number is unknown.
// This is so if the session has another role, if track_activities is off, if the transaction is
// prepared, or if the clock was set back after the transaction began. It is also so if the clock is
// after $2, because events then get earlier numbers.
const openPublications = `
	select min(case
		when a.state is null or a.state = 'disabled' or a.xact_start > clock_timestamp() or clock_timestamp() > $2 then 0
		when a.xact_start is not null then (extract(epoch from a.xact_start - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096
	end)
	from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'relation' and l.relation = $1::text::regclass and l.mode = 'RowExclusiveLock'
		and l.database = (select oid from pg_database where datname = current_database())`

// notePublications records the transactions that may have published before the account $2 was
// closed. The first call records all open transactions. Later calls keep only the recorded
// transactions that are still open. The result is true if none is left. The account must have been
// closed in an earlier, committed transaction, so that later publications are refused. $1 is the
// table on which a publishing transaction holds a lock until it ends. PREPARE TRANSACTION changes
// the name of a transaction. So if a recorded transaction may have been prepared since the last
// call, all transactions prepared since then are recorded as well.
const notePublications = `
	update storageapi.erasures e set open = array(
		select distinct l.virtualtransaction from pg_locks l
		where l.locktype = 'relation' and l.relation = $1::text::regclass and l.mode = 'RowExclusiveLock' and l.granted
			and l.database = (select oid from pg_database where datname = current_database()) and l.pid is distinct from pg_backend_pid()
			and (e.open is null or l.virtualtransaction = any(e.open)
				or l.pid is null and exists (select from unnest(e.open) as o (name) where o.name not like '-1/%')))
	where account = $2 returning cardinality(open) = 0`

// notifies sends the payload $2 on the channel $1.
const notifies = `select pg_notify($1, $2)`

// notifiesAll sends the payloads $2 on the channels $1.
const notifiesAll = `select pg_notify(channel, payload) from unnest($1::text[], $2::text[]) as h (channel, payload)`

// listenOn returns the statement that listens on a channel.
func listenOn(channel string) string { return `listen ` + pgx.Identifier{channel}.Sanitize() }

// These statements read the change feed and a snapshot, which records the transactions whose
// changes were visible.
var (
	changesSince = query("changes_since")
	beginShards  = query("begin_shards")
)

// Statements on parts (partitions). A part is created as a separate table, like its parent, and
// then attached, which conflicts only with other such steps. It is detached concurrently, in its
// own transaction: that waits for transactions that may read the part and ends with a lock on the
// part alone. This package chooses the names.
const (
	oftenVacuumed = ` with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false)`

	// lastPart selects an event number, and the end and the name of the last part of the table $1.
	// The number is that of the current time, or of $2 if that is earlier.
	lastPart = `
		select (extract(epoch from least(clock_timestamp(), $2::timestamptz) - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096, below, name
		from storageapi.partitions where kind = $1 order by least desc limit 1`
	notePart     = `insert into storageapi.partitions (kind, least, below, name) values ($1, $2, $3, $4)`
	forgetPart   = `delete from storageapi.partitions where kind = $1 and name = $2`
	lengthenPart = `update storageapi.partitions set below = $3 where kind = $1 and name = $2`

	// moveEnd records the number up to which every table except $1 has parts.
	moveEnd = `
		update storageapi.marks set event = (
			select min(below) from (select max(below) as below from storageapi.partitions where kind <> $1 group by kind) t)
		where name = 'parts'`

	// pastParts selects the parts of the table $1 that are before all of the marks $2, except the
	// last part. For each part it selects the state, and whether the part ended more than $4
	// numbers before the marks. $3 is the schema, with a dot.
	pastParts = `
		select p.kind, p.name,
			case when c.oid is null then 3 when i.inhrelid is null then 2 when i.inhdetachpending then 1 else 0 end, p.below <= m.event - $4::bigint
		from (select kind, name, below, least from storageapi.partitions where kind = $1 order by least desc offset 1) p
		cross join (select min(event) as event from storageapi.marks where name = any($2::text[])) m
		left join pg_class c on c.oid = to_regclass($3::text || p.name)
		left join pg_inherits i on i.inhrelid = c.oid
		where p.below <= m.event order by p.least`

	// rights selects the role, whether it may create tables in the schema $1, and the owner of a
	// partitioned table in this schema if the role lacks the owner's rights.
	rights = `
		select current_user::text, has_schema_privilege(n.oid, 'create'), (
			select pg_get_userbyid(relowner)::text from pg_class
			where relnamespace = n.oid and relkind = 'p' and not pg_has_role(relowner, 'usage') limit 1)
		from pg_namespace n where nspname = $1`

	// forgetRequestsOf removes the requests of the account $1 that used the key $2. It skips rows
	// that forgetRequests is removing at the same time.
	forgetRequestsOf = `
		with made as materialized (
			select kind, account, name from storageapi.requests where kind = any('{0,1}') and account = $1 and key_id = $2
			order by kind, account, name for update skip locked
		)
		delete from storageapi.requests r using made
		where r.kind = any(array[made.kind]) and r.account = made.account and r.name = made.name`
)

func makePart(t *partedTable, name string) string {
	return fmt.Sprintf(`create table storageapi.%s (like storageapi.%s including all)%s`, name, t.name, t.with)
}

func attachPart(t *partedTable, name string, from, below int64) string {
	attach := fmt.Sprintf(`alter table storageapi.%s attach partition storageapi.%s for values `, t.name, name)
	if t.name == eventIDs {
		return attach + fmt.Sprintf(`in (%d)`, from)
	}
	return attach + fmt.Sprintf(`from (%d) to (%d)`, from, below)
}

func dropTable(name string) string { return `drop table if exists storageapi.` + name }

// detachPart detaches a part, or finishes an interrupted detach. It must run outside a transaction.
func detachPart(part pastPart) string {
	how := "concurrently"
	if part.state == partDetaching {
		how = "finalize"
	}
	return fmt.Sprintf(`alter table storageapi.%s detach partition storageapi.%s %s`, part.kind, part.name, how)
}

// These statements delete audit entries by ctid. Without it, a plan made while there are few
// entries may scan all of an account's entries for each deleted one, because four indexes of the
// table begin with the account.
const (
	// trimAuditEntries removes routine audit entries of the account $1, except the latest $2. It
	// skips locked entries, which a later call removes.
	trimAuditEntries = `
		delete from storageapi.audit where ctid = any(array(
			select ctid from storageapi.audit
			where account = $1 and routine
				and number <= (select number from storageapi.audit where account = $1 and routine order by number desc offset $2 limit 1)
			for update skip locked))`

	// purgeAuditEntries removes the oldest audit entries, at most $2, that were stored before $1.
	purgeAuditEntries = `
		delete from storageapi.audit where ctid = any(array(
			select ctid from storageapi.audit where stored_at < $1 order by stored_at limit $2))`
)
