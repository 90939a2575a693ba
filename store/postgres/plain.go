package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// What is particular to plain PostgreSQL stands in this file: settings of sessions and of the
// planner, notifications, what tells transactions and where rows are. All other statements are
// SQL that engines have, too, which speak PostgreSQL's protocol: internal/cockroach reads them
// with the parser of one, and knows their functions. Migrations are exempt: another engine needs
// its own.

// A plan made while tables were empty, with sequential scans, stays in use until the server analyzes the
// tables, minutes after they have filled. So sequential scans are switched off (lookUp). Plans without
// them look costly, so JIT compilation, which takes a second, is off too.
//
// For the same reason long statements start from their parameters, never scan a whole table, and have one
// plan that fits all cases and is made once (indexed). Where one deletes or updates what a part of it has
// found, it compares the first column of the index as `= any(array[…])`: by equality alone it may be joined
// the other way around, with all that is in the index, and a range of rows, `(a, b) between …`, is read to
// the end of the first column's value. Short statements have their arrays by `(select $1)`: otherwise the
// planner sees how long an array is, and finds a plan for one element so cheap that it makes one with each
// call, which takes longer than to run it.
//
// Connections of our own pool have the settings of both, and those of begin, from their start. Other
// statements are preceded by them in the same round trip; those in the host's transactions are planned with
// its settings.
const (
	lookUp  = `set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`
	indexed = lookUp + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_bitmapscan', 'off', true), ` +
		`set_config('enable_hashagg', 'off', true), ` + probed

	// A node that loses power or hangs in the middle of a transaction must not keep its locks: the
	// server ends its session. The first setting counts from the server's last answer; the others
	// detect within 5 s and some probes that a node is gone in the middle of a batch.
	unidle = `set_config('idle_in_transaction_session_timeout', '5s', true)`
	probed = `set_config('tcp_keepalives_idle', '5', true), set_config('tcp_keepalives_interval', '1', true)`

	begin = `begin; select ` + unidle + `, ` + indexed
)

// What some statements have set besides.
const (
	inOrder     = `set_config('enable_sort', 'off', true)`        // lists are read by the index in whose order they are, however cheap another one looks
	lockBriefly = `set_config('lock_timeout', '100ms', true)`     // other events must not wait for one that a transaction of the host has published
	lockSoon    = `set_config('lock_timeout', '1s', true)`        // a node that waited longer could miss its heartbeats
	deferred    = `set_config('synchronous_commit', 'off', true)` // the step need not survive a crash of the database
)

// ownSettings are the settings of the connections of our own pool.
var ownSettings = `select ` + strings.ReplaceAll(unidle+`, `+indexed, `true)`, `false)`)

// set returns the statement that sets them.
func set(settings ...string) string { return `select ` + strings.Join(settings, ", ") }

// settings returns the statement that sets what a statement of this package needs: base, which is lookUp or
// indexed, unless the pool is our own, whose connections have both, and more. It may be empty.
func (s *Store) settings(base string, more ...string) string {
	if !s.options.ownPool {
		more = append([]string{base}, more...)
	}
	if len(more) == 0 {
		return ""
	}
	return set(more...)
}

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

// exportSnapshot is how a page of an export is read: all of one moment, and by indexes.
var exportSnapshot = pgx.TxOptions{BeginQuery: `begin isolation level repeatable read, read only; select ` + unidle + `, ` + indexed}

// openPublications is the least number that an event may have whose transaction is open:
// such a transaction has a lock on the table $1. It is 0 if that cannot be known: of a session of another role or
// without track_activities, of a transaction that is prepared, or if the clock was set, back since the transaction
// began or to after $2, so that events get earlier numbers.
const openPublications = `
	select min(case
		when a.state is null or a.state = 'disabled' or a.xact_start > clock_timestamp() or clock_timestamp() > $2 then 0
		when a.xact_start is not null then (extract(epoch from a.xact_start - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096
	end)
	from pg_locks l left join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'relation' and l.relation = $1::text::regclass and l.mode = 'RowExclusiveLock'
		and l.database = (select oid from pg_database where datname = current_database())`

// notePublications notes which transactions that have published may have done so before the account $2 was closed:
// at first all that are open, and of these later those that are open still. It returns whether there are none.
// Closing the account must have been committed before: publications that begin later are refused. $1 is the table
// that publications lock until they have ended. A transaction that is prepared gets another name, so those
// are noted, too, that are prepared while another that was noted may have been.
const notePublications = `
	update storageapi.erasures e set open = array(
		select distinct l.virtualtransaction from pg_locks l
		where l.locktype = 'relation' and l.relation = $1::text::regclass and l.mode = 'RowExclusiveLock' and l.granted
			and l.database = (select oid from pg_database where datname = current_database()) and l.pid is distinct from pg_backend_pid()
			and (e.open is null or l.virtualtransaction = any(e.open)
				or l.pid is null and exists (select from unnest(e.open) as o (name) where o.name not like '-1/%')))
	where account = $2 returning cardinality(open) = 0`

// notifies sends the text $2 to those who listen on the channel $1.
const notifies = `select pg_notify($1, $2)`

// notifiesAll sends the texts $2 to those who listen on the channels $1.
const notifiesAll = `select pg_notify(channel, payload) from unnest($1::text[], $2::text[]) as h (channel, payload)`

// listenOn has a connection listen on a channel.
func listenOn(channel string) string { return `listen ` + pgx.Identifier{channel}.Sanitize() }

// These read a snapshot, which says of each transaction whether its changes were seen.
var (
	changesSince = query("changes_since")
	beginShards  = query("begin_shards")
)

// Parts of tables. A part is made apart, with what the table has, and attached: that locks the table
// against other such steps only. It is detached concurrently, in a transaction of its own, which also
// waits for those that may read it, and ends with a lock on the part alone. Names are of this package.
const (
	oftenVacuumed = ` with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false)`

	// lastPart selects the number of an event now, which is $2 at the latest, and where the last part of the table $1 ends, and its name.
	lastPart = `
		select (extract(epoch from least(clock_timestamp(), $2::timestamptz) - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096, below, name
		from storageapi.partitions where kind = $1 order by least desc limit 1`
	notePart     = `insert into storageapi.partitions (kind, least, below, name) values ($1, $2, $3, $4)`
	forgetPart   = `delete from storageapi.partitions where kind = $1 and name = $2`
	lengthenPart = `update storageapi.partitions set below = $3 where kind = $1 and name = $2`

	// moveEnd notes up to which number each table has parts, but for the table $1.
	moveEnd = `
		update storageapi.marks set event = (
			select min(below) from (select max(below) as below from storageapi.partitions where kind <> $1 group by kind) t)
		where name = 'parts'`

	// pastParts selects the parts of the table $1 that are before all of the marks $2, but for the last
	// part, with their states, and whether they are by $4 numbers. $3 is the schema, with a dot.
	pastParts = `
		select p.kind, p.name,
			case when c.oid is null then 3 when i.inhrelid is null then 2 when i.inhdetachpending then 1 else 0 end, p.below <= m.event - $4::bigint
		from (select kind, name, below, least from storageapi.partitions where kind = $1 order by least desc offset 1) p
		cross join (select min(event) as event from storageapi.marks where name = any($2::text[])) m
		left join pg_class c on c.oid = to_regclass($3::text || p.name)
		left join pg_inherits i on i.inhrelid = c.oid
		where p.below <= m.event order by p.least`

	// rights selects the role, whether it may create tables in the schema $1, and the owner of a table
	// in it that is in parts whose rights it does not have.
	rights = `
		select current_user::text, has_schema_privilege(n.oid, 'create'), (
			select pg_get_userbyid(relowner)::text from pg_class
			where relnamespace = n.oid and relkind = 'p' and not pg_has_role(relowner, 'usage') limit 1)
		from pg_namespace n where nspname = $1`

	// forgetRequestsOf passes over those that forgetRequests removes at the same time.
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

// detachPart goes on with the detaching of a part, if it was begun. It must not run in a transaction.
func detachPart(part pastPart) string {
	how := "concurrently"
	if part.state == partDetaching {
		how = "finalize"
	}
	return fmt.Sprintf(`alter table storageapi.%s detach partition storageapi.%s %s`, part.kind, part.name, how)
}

// These delete audit entries by their places: four indexes of audit entries begin with the account, and a plan made
// while there are few may look for each audit entry among all of its account.
const (
	// trimAuditEntries removes routine audit entries of account $1 but the latest $2. It passes over one that is
	// being taken: a later call removes it.
	trimAuditEntries = `
		delete from storageapi.audit where ctid = any(array(
			select ctid from storageapi.audit
			where account = $1 and routine
				and number <= (select number from storageapi.audit where account = $1 and routine order by number desc offset $2 limit 1)
			for update skip locked))`

	// purgeAuditEntries removes the oldest audit entries, $2 at most, that were stored before $1.
	purgeAuditEntries = `
		delete from storageapi.audit where ctid = any(array(
			select ctid from storageapi.audit where stored_at < $1 order by stored_at limit $2))`
)
