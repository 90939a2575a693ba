-- Everything is in one schema. IDs and accounts are compared byte by byte.

-- The migrations that were applied, with their checksums, and the oldest version that can use the
-- schema since.
create table storageapi.versions (
	version    integer primary key,
	applied_at timestamptz not null default clock_timestamp(),
	checksum   bytea,
	oldest     integer not null check (oldest <= version)
);

-- Creations in an account lock its row, under which its limits are counted.
create table storageapi.accounts (
	account text collate "C" primary key
);

-- A row for each hash that finds a key: its present one and, while it has one, its previous one,
-- where next is the present one. The other columns are the same in both: a request looks up one row.
create table storageapi.keys (
	hash                bytea primary key,
	next                bytea,
	account             text collate "C" not null,
	id                  text collate "C" not null,
	name                text not null,
	scopes              text[] not null,
	created_at          timestamptz not null,
	expires_at          timestamptz,
	previous            bytea,
	previous_expires_at timestamptz,
	fields              bytea not null default '' -- packed, without those that have a column
);
create unique index keys_account on storageapi.keys (account, id) where next is null;
create index keys_expiring on storageapi.keys (expires_at, account, id) where next is null and expires_at is not null;

-- Apart from the keys, which must not churn. An empty hash stands for the key itself.
create table storageapi.key_uses (
	account  text collate "C" not null,
	id       text collate "C" not null,
	hash     bytea not null,
	at       timestamptz not null,
	activity bytea not null default '', -- of the key itself
	primary key (account, id, hash)
) with (fillfactor = 50);

-- Idempotency keys, by the kind of what their requests created.
create table storageapi.requests (
	kind    smallint not null,
	account text collate "C" not null,
	name    text collate "C" not null,
	id      text collate "C" not null,
	sum     bytea not null,
	at      timestamptz not null,
	key_id  text collate "C" not null, -- of the API key that made the request; empty: none did
	primary key (kind, account, name)
);
create index requests_at on storageapi.requests (at);

-- Accounts that are being erased: nothing is added to them meanwhile. What was removed so far is
-- counted by kind. Transactions that published before the account was closed may be open.
create table storageapi.erasures (
	account text collate "C" primary key,
	counts  bigint[] not null,
	open    text[] -- the virtual transactions; null: not noted yet
);

-- Webhooks. The version counts the changes, from 1 on.
create table storageapi.webhooks (
	no                         bigint generated always as identity primary key,
	account                    text collate "C" not null,
	id                         text collate "C" not null unique,
	url                        text not null,
	events                     text[] not null, -- types, or '*' and '*:' with each scope whose types are sent
	active                     boolean not null,
	off_reason                 text not null,
	off_at                     timestamptz,
	held                       boolean not null default false,
	paused_until               timestamptz,
	proven_at                  timestamptz,
	failing_since              timestamptz,
	failing_event              text collate "C" not null default '', -- the first that failed since then
	failed_again               boolean not null default false,       -- another event has failed, too
	warned_at                  timestamptz,
	secret                     bytea not null,
	created_at                 timestamptz not null,
	previous_secret            bytea,
	header_secrets             bytea not null default '', -- the values of secret headers
	fields                     bytea not null default '', -- packed, without those that have a column
	resources                  text[] not null default '{}', -- those in fields, for statements; empty: no limit
	version                    bigint not null default 1
) with (fillfactor = 70);
create unique index webhooks_account on storageapi.webhooks (account, id);
create index webhooks_failing on storageapi.webhooks (id) where failed_again and active;
create index webhooks_held on storageapi.webhooks (id) where held;
create index webhooks_off on storageapi.webhooks (id) where not active;

-- Webhooks that were deleted, for as long as rows refer to them by number.
create table storageapi.past_webhooks (
	no         bigint primary key,
	account    text collate "C" not null,
	id         text collate "C" not null,
	deleted_at timestamptz not null
);
create index past_webhooks_account on storageapi.past_webhooks (account);

-- A shard of 0 to 255, of an account: its FNV-1a hash of 32 bits modulo 256.
create function storageapi.shard_of(account text) returns smallint language plpgsql immutable strict as $shard$
declare
	bytes bytea = convert_to(account, 'UTF8');
	hash  bigint = 2166136261;
begin
	for i in 0 .. length(bytes) - 1 loop
		hash = ((hash # get_byte(bytes, i)) * 16777619) & 4294967295;
	end loop;
	return hash % 256;
end
$shard$;

-- The nodes that are alive, and their heartbeats. A node without a row has lost its shards: its
-- settlements lock its row of nodes first, which never changes.
create table storageapi.nodes (
	node bigint primary key
);
create table storageapi.heartbeats (
	node  bigint primary key,
	until timestamptz not null,
	beat  bigint not null default 0,
	seen  bigint not null default 0, -- every change of a transaction before this one was read
	busy  boolean not null default false -- it reads changes so often that it need not be notified
) with (fillfactor = 50);

create table storageapi.shard_owners (
	shard smallint primary key,
	node  bigint not null default 0, -- 0: none
	epoch bigint not null default 0  -- counts the owners
) with (fillfactor = 50);
insert into storageapi.shard_owners (shard) select generate_series(0, 255);

-- Changes that owners have to read, by the transaction that made them. The lists belong together,
-- element by element.
create table storageapi.changes (
	added    bigint not null default pg_current_xact_id()::text::bigint,
	kind     smallint not null,
	shards   smallint[] not null,
	webhooks bigint[] not null,
	events   bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index changes_added on storageapi.changes (added);
create index changes_probes on storageapi.changes (added) where kind = 3; -- an owner reads also those from before it took a shard

-- Pending deliveries. Owners have them in memory, too; attempts under way are only there.
create table storageapi.pending (
	webhook   bigint not null,
	event     bigint not null,
	shard     smallint not null,
	recovered boolean not null,
	due       timestamptz not null,
	attempts  integer not null,
	before    integer not null,
	primary key (webhook, event)
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
-- By event + 0, so that no lookup of an event takes this index.
create index pending_shard_event on storageapi.pending (shard, (event + 0));

-- Events, their bodies, attempts and failures are in parts by the events' numbers, which is by time:
-- what is past is dropped with its part. The marks, and not the rows, say what is still there.
--
-- An event's number is the microsecond in which it was published, counted from 2020, and 12 bits
-- that tell apart those of one microsecond.
create table storageapi.event_log (
	event    bigint primary key,
	account  text collate "C" not null,
	id       text collate "C" not null,
	type     text not null,
	at       timestamptz not null,
	matched  integer not null,
	known    boolean not null default true, -- its id is in event_ids
	trace    text,
	resource text
) partition by range (event);
create index event_log_account on storageapi.event_log (account, type, event);
create sequence storageapi.event_clock minvalue 0;
create sequence storageapi.event_numbers cycle minvalue 0 maxvalue 4095 cache 1;

-- Bodies are past before their events. An event that matched no webhook has none.
create table storageapi.event_bodies (
	event bigint primary key,
	body  bytea not null
) partition by range (event);

-- State is that of the delivery after the attempt: 0 pending, 1 delivered, 2 dead; 3 is a skipped
-- delivery, number 0, and no attempt.
create table storageapi.attempt_log (
	event      bigint not null,
	webhook    bigint not null,
	number     integer not null,
	state      smallint not null,
	started_at timestamptz,
	took       bigint not null,
	status     integer not null,
	class      text not null,
	error      text not null,
	response   text not null,
	primary key (webhook, event, number)
) partition by range (event);

-- The deliveries that failed: whose last attempt did, or that were skipped. Triggers keep it; most
-- attempts succeed at once and fire none. What is delivered while another attempt of it is logged may
-- be noted nevertheless, and lists pass it over.
create table storageapi.failure_log (
	webhook bigint not null,
	event   bigint not null,
	primary key (webhook, event)
) partition by range (event);

create function storageapi.note_failure() returns trigger language plpgsql set enable_seqscan = off as $failures$
begin
	if tg_op = 'DELETE' then
		delete from storageapi.failure_log where webhook = old.webhook and event = old.event
			and not exists (select from storageapi.attempt_log where webhook = old.webhook and event = old.event);
	elsif new.state = 1 then
		delete from storageapi.failure_log where webhook = new.webhook and event = new.event;
	else
		insert into storageapi.failure_log (webhook, event) values (new.webhook, new.event) on conflict do nothing;
	end if;
	return null;
end
$failures$;
create trigger attempts_logged after insert on storageapi.attempt_log for each row
	when (new.state <> 1 or new.number > 1) execute function storageapi.note_failure();
create trigger attempts_removed after delete on storageapi.attempt_log for each row
	when (old.state <> 1) execute function storageapi.note_failure();

-- The IDs of events, by which a repeated publication is recognized, in parts by when they were
-- published: a publication adds its IDs to the last part that has begun, where the unique index keeps
-- others from adding the same ones, and looks for them in the parts before. Of an ID that is in
-- several parts the last one has the event, unless that is before the mark: then the ID is unknown.
create table storageapi.event_ids (
	part    bigint not null, -- from which number on events add to it
	account text collate "C" not null,
	id      text collate "C" not null,
	event   bigint not null,
	primary key (part, account, id)
) partition by list (part);

-- The parts of these tables, each of which begins where the one before ends.
create table storageapi.partitions (
	kind  text not null, -- the table
	least bigint not null,
	below bigint not null,
	name  text not null,
	primary key (kind, least)
);

-- The first parts are for all that is imported from before, and for eight days.
insert into storageapi.partitions (kind, least, below, name)
	select kind, 0, extract(epoch from now() + interval '8 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096, kind || '_0'
	from unnest(array['event_log', 'event_bodies', 'attempt_log', 'failure_log', 'event_ids']) as t (kind);
create table storageapi.event_log_0 partition of storageapi.event_log
	for values from (minvalue) to ((extract(epoch from now() + interval '8 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096));
create table storageapi.event_bodies_0 partition of storageapi.event_bodies
	for values from (minvalue) to ((extract(epoch from now() + interval '8 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096));
create table storageapi.attempt_log_0 partition of storageapi.attempt_log
	for values from (minvalue) to ((extract(epoch from now() + interval '8 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096));
create table storageapi.failure_log_0 partition of storageapi.failure_log
	for values from (minvalue) to ((extract(epoch from now() + interval '8 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096))
	with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create table storageapi.event_ids_0 partition of storageapi.event_ids for values in (0);

-- The last number of an event. A function, so that a statement that needs it only sometimes does not
-- prepare to read all parts.
create function storageapi.last_event() returns bigint language plpgsql set enable_seqscan = off as $last$
begin
	return (select event from storageapi.event_log order by event desc limit 1);
end
$last$;

create table storageapi.recoveries (
	no         bigint generated always as identity primary key,
	id         text collate "C" not null unique,
	account    text collate "C" not null,
	webhook    bigint not null,
	webhook_id text collate "C" not null,
	states     text[] not null,
	from_at    timestamptz,
	to_at      timestamptz not null,
	created_at timestamptz not null,
	recovered  integer not null default 0,
	done       boolean not null default false,
	next       bigint not null default 0,
	turn       bigint not null default 0
);
create unique index recoveries_undone on storageapi.recoveries (webhook) where not done;
create index recoveries_webhook on storageapi.recoveries (webhook);
create index recoveries_done on storageapi.recoveries (created_at) where done;

create table storageapi.alerts (
	account text collate "C" not null,
	series  text collate "C" not null,
	state   bytea not null,
	due     boolean not null default false,
	primary key (account, series)
) with (fillfactor = 70);
create index alerts_due on storageapi.alerts (account) where due;

-- Deduplication keys.
create table storageapi.dedup_keys (
	account text collate "C" not null,
	key     text collate "C" not null,
	until   timestamptz not null,
	primary key (account, key, until)
);
create index dedup_keys_until on storageapi.dedup_keys (until);

-- What happened to keys and webhooks: the audit log, and of what is pending what the host is to be
-- notified of. A number is given once the target is locked: of two audit entries of one target the one that
-- is committed later has the greater.
create table storageapi.audit (
	account        text collate "C" not null,
	id             text collate "C" not null,
	number         bigint not null generated always as identity,
	stored_at      timestamptz not null default clock_timestamp(),
	pending        boolean not null,
	at             timestamptz not null,
	action         text not null,
	target_kind    text not null,
	target_id      text collate "C" not null,
	fields         bytea not null default '', -- packed, without those that have a column
	routine        boolean not null default false, -- of these an account has the latest only
	primary key (account, id)
);
create index audit_routine on storageapi.audit (account, number) where routine;
create index audit_pending on storageapi.audit (account, number) where pending;
create index audit_stored_at on storageapi.audit (stored_at);
create index audit_account on storageapi.audit (account, number);
create index audit_target on storageapi.audit (account, target_kind, target_id, number);

-- The lease of the node that notifies the host: one row at most.
create table storageapi.audit_lease (
	one    boolean primary key default true check (one),
	holder text not null,
	until  timestamptz not null
);

-- How far housekeeping has come, by event, which it locks meanwhile: no event before payloads has a
-- body, none before attempts has attempts, the ID of none before ids is known, and nodes have read the
-- changes before changes. Before parts each table that is in parts by number has one. Recoveries advance
-- under the lock of recoveries. The seal of seal says which keys seal the signing secrets, and that of cursors
-- hides events' numbers in cursors.
create table storageapi.marks (
	name  text primary key,
	event bigint,
	seal  bytea
);
insert into storageapi.marks (name, event) values ('payloads', 0), ('attempts', 0), ('ids', 0), ('changes', 0), ('recoveries', null), ('seal', null);
insert into storageapi.marks (name, event) select 'parts', min(below) from storageapi.partitions;
insert into storageapi.marks (name, seal) values ('cursors', sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- The database's clock as the nodes have seen it. A jump ahead of more than an hour is not believed before it
-- has lasted for a day.
create table storageapi.clock (
	one    boolean primary key default true check (one),
	seen   timestamptz not null,                   -- the latest observation
	doubt  interval not null default '0',          -- the sum of the jumps
	jumps  bigint[] not null default '{}'::bigint[], -- that are not believed, in microseconds
	lasted bigint[] not null default '{}'::bigint[]  -- how long each has been observed, in microseconds
);
insert into storageapi.clock (seen) values (clock_timestamp());

-- The confirmed clock. It stands still at the latest observation while the database's clock is before that, or
-- has jumped since.
create function storageapi.confirmed_clock() returns timestamptz language plpgsql as $confirmed$
begin
	return (
		select seen - doubt + case when elapsed between interval '0' and interval '1 hour' then elapsed else interval '0' end
		from (select seen, doubt, clock_timestamp() - seen as elapsed from storageapi.clock where one) c);
end
$confirmed$;

insert into storageapi.versions (version, oldest) values (1, 1);
