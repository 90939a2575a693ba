-- Accounts are in 256 shards. A node owns shards: it alone delivers what is pending there, from
-- its memory. Nodes of older versions find nothing to claim any more, and what they still attempt
-- cannot be settled; they publish and verify as before. From here until the first node of this
-- version starts nothing is delivered.

-- All that is pending moves once, for which publishing, creating webhooks and settling wait: about
-- five seconds a million deliveries. The locks are in the order in which older nodes take them, so
-- that none is ended for this; who reads, such as a backup, neither waits nor is waited for. Under
-- the locks all that was committed is seen, unless the transaction looked at something before and
-- is not read committed.
lock table storageapi.leases in exclusive mode;
lock table storageapi.queue in exclusive mode;
lock table storageapi.webhooks in share row exclusive mode;

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

-- The nodes that are alive, and their heartbeats. A node that has no rows any more has lost its
-- shards: what it settles locks its row of nodes first, which never changes.
create table storageapi.nodes (
	node bigint primary key
);
create table storageapi.beats (
	node  bigint primary key,
	until timestamptz not null,
	beat  bigint not null default 0,
	seen  bigint not null default 0 -- every change of a transaction before this one was read
) with (fillfactor = 50);

create table storageapi.shard_owners (
	shard smallint primary key,
	node  bigint not null default 0, -- 0: nobody
	epoch bigint not null default 0  -- counts the owners
) with (fillfactor = 50);
insert into storageapi.shard_owners (shard) select generate_series(0, 255);

-- What is pending. Owners have it in memory, too; what is being attempted is only there.
create table storageapi.pending (
	webhook   bigint not null,
	event     bigint not null,
	shard     smallint not null,
	recovered boolean not null,
	due       timestamptz not null,
	attempts  integer not null,
	before    integer not null
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
set local enable_nestloop = off;
with shards as materialized (
	select no, storageapi.shard_of(account) as shard from storageapi.webhooks where no in (select webhook from storageapi.queue)
)
insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
	select q.webhook, q.event, s.shard, q.kind & 1 = 1, q.due, q.attempts, q.before
	from storageapi.queue q join shards s on s.no = q.webhook;
set local enable_nestloop = on;
alter table storageapi.pending add primary key (webhook, event);
create index pending_shard on storageapi.pending (shard);
analyze storageapi.pending;
delete from storageapi.queue;
delete from storageapi.leases;

-- What owners need to hear of, by the transaction that did it. The lists belong together, element
-- by element.
create table storageapi.changes (
	added    bigint not null default pg_current_xact_id()::text::bigint,
	kind     smallint not null,
	shards   smallint[] not null,
	webhooks bigint[] not null,
	events   bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index changes_added on storageapi.changes (added);
create index changes_probes on storageapi.changes (added) where kind = 3; -- those of before a shard was taken are read, too
insert into storageapi.marks (name, event) values ('changes', 0);

-- What nodes of older versions add to the queue is pending. What they make due again may be
-- pending already, of which they do not know.
create function storageapi.move_pending() returns trigger language plpgsql set enable_seqscan = off as $move$
declare
	of    smallint = (select storageapi.shard_of(account) from storageapi.webhooks where no = new.webhook);
	added boolean;
begin
	delete from storageapi.queue where webhook = new.webhook and event = new.event;
	if of is null then
		return null;
	end if;
	insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
		values (new.webhook, new.event, of, new.kind & 1 = 1, new.due, new.attempts, new.before) on conflict do nothing;
	added = found;
	if not added and new.kind & 1 = 0 then
		update storageapi.pending set due = least(due, new.due), recovered = false where webhook = new.webhook and event = new.event;
	end if;
	if added or found then
		insert into storageapi.changes (kind, shards, webhooks, events)
			values (case when added then 0 else 1 end, array[of], array[new.webhook], array[new.event]);
	end if;
	return null;
end
$move$;
create trigger queue_moves after insert on storageapi.queue for each row execute function storageapi.move_pending();

-- What nodes of older versions do to a webhook and its owner does not see when it claims: that it
-- may have attempts again, is gone, or is to be probed.
create function storageapi.note_webhook() returns trigger language plpgsql as $note$
begin
	insert into storageapi.changes (kind, shards, webhooks, events)
		values (tg_argv[0]::smallint, array[storageapi.shard_of(old.account)], array[old.no], array[0]);
	return null;
end
$note$;
create trigger webhooks_woken after update on storageapi.webhooks for each row
	when (new.active and not old.active or old.held is true and new.held is not true or old.rests_until is not null and new.rests_until is null)
	execute function storageapi.note_webhook(2);
create trigger webhooks_deleted after delete on storageapi.webhooks for each row execute function storageapi.note_webhook(2);
create trigger webhooks_probed after update of probe_at on storageapi.webhooks for each row
	when (new.probe_at is not null and new.probe_at is distinct from old.probe_at)
	execute function storageapi.note_webhook(3);

-- Nodes of older versions do not know that something is pending for a webhook whose last trace
-- they remove.
create function storageapi.drop_pending() returns trigger language plpgsql set enable_seqscan = off as $drop$
begin
	delete from storageapi.pending where webhook = old.no;
	return null;
end
$drop$;
create trigger past_webhooks_removed after delete on storageapi.past_webhooks for each row execute function storageapi.drop_pending();

insert into storageapi.versions (version, oldest) values (20, 9);
