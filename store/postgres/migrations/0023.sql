-- Events, attempts and ids are in parts by the events' numbers, which is by time: what is past is
-- dropped with its part. Nodes that know this name only event_log, attempt_log and failure_log;
-- older ones write to events, attempts and failures, which are parts of these. From here on the
-- marks, and not the rows, say what is still there.

lock table storageapi.events in access exclusive mode;
lock table storageapi.attempts in access exclusive mode;
lock table storageapi.failures in access exclusive mode;

create table storageapi.event_log (like storageapi.events including defaults) partition by list (layout);
alter table storageapi.event_log alter column layout set default 1;
alter table storageapi.event_log attach partition storageapi.events for values in (0);
create table storageapi.recent_events partition of storageapi.event_log (primary key (event)) for values in (1) partition by range (event);
create index recent_events_account on storageapi.recent_events (account, type, event);

create table storageapi.attempt_log (like storageapi.attempts including defaults) partition by list (layout);
alter table storageapi.attempt_log alter column layout set default 1;
alter table storageapi.attempt_log attach partition storageapi.attempts for values in (0);
create table storageapi.recent_attempts partition of storageapi.attempt_log (primary key (webhook, event, number)) for values in (1) partition by range (event);

create table storageapi.failure_log (like storageapi.failures including defaults) partition by list (layout);
alter table storageapi.failure_log alter column layout set default 1;
alter table storageapi.failure_log attach partition storageapi.failures for values in (0);
create table storageapi.recent_failures partition of storageapi.failure_log (primary key (webhook, event)) for values in (1) partition by range (event);

-- The bodies, apart from the events that they are of: they are past before these.
create table storageapi.event_bodies (
	event bigint primary key,
	body  bytea not null
) partition by range (event);

-- The parts, but for those of before and for the defaults, where is what no other part is for.
create table storageapi.partitions (
	kind  text not null, -- the table that it is a part of
	least bigint not null,
	below bigint not null,
	name  text primary key
);

-- The first parts are for all that is from before, and for two days.
create table storageapi.recent_events_0 partition of storageapi.recent_events
	for values from (minvalue) to ((extract(epoch from now() + interval '2 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096));
create table storageapi.recent_attempts_0 partition of storageapi.recent_attempts
	for values from (minvalue) to ((extract(epoch from now() + interval '2 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096));
create table storageapi.recent_failures_0 partition of storageapi.recent_failures
	for values from (minvalue) to ((extract(epoch from now() + interval '2 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096))
	with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create table storageapi.event_bodies_0 partition of storageapi.event_bodies
	for values from (minvalue) to ((extract(epoch from now() + interval '2 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096));
insert into storageapi.partitions (kind, least, below, name)
	select kind, 0, extract(epoch from now() + interval '2 days' - '2020-01-01 00:00:00Z'::timestamptz)::bigint * 1000000 * 4096, kind || '_0'
	from unnest(array['recent_events', 'recent_attempts', 'recent_failures', 'event_bodies']) as t (kind);
create table storageapi.recent_events_default partition of storageapi.recent_events default;
create table storageapi.recent_attempts_default partition of storageapi.recent_attempts default;
create table storageapi.recent_failures_default partition of storageapi.recent_failures default
	with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create table storageapi.event_bodies_default partition of storageapi.event_bodies default;
create index on storageapi.recent_attempts_default ((event + 0)); -- no list takes that index
create index on storageapi.recent_failures_default ((event + 0)); -- no list takes that index

-- Failures are noted of all attempts, wherever they are.
drop trigger attempts_logged on storageapi.attempts;
drop trigger attempts_removed on storageapi.attempts;
create or replace function storageapi.note_failure() returns trigger language plpgsql set enable_seqscan = off as $failures$
begin
	if tg_op = 'DELETE' then
		delete from storageapi.failure_log where webhook = old.webhook and event = old.event
			and not exists (select from storageapi.attempt_log where webhook = old.webhook and event = old.event);
	elsif new.state = 1 then
		delete from storageapi.failure_log where webhook = new.webhook and event = new.event;
	else
		insert into storageapi.failure_log (webhook, event) select new.webhook, new.event
			where not exists (select from storageapi.failure_log where webhook = new.webhook and event = new.event)
			on conflict do nothing;
	end if;
	return null;
end
$failures$;
create trigger attempts_logged after insert on storageapi.attempt_log for each row
	when (new.state <> 1 or new.number > 1) execute function storageapi.note_failure();
create trigger attempts_removed after delete on storageapi.attempt_log for each row
	when (old.state <> 1) execute function storageapi.note_failure();

-- The ids of events, by which one that is published again is known, in slots of time. New ones
-- are in the slot that is the last value of the sequence, and in the one before until it is sealed:
-- until nothing is open that may not know of its successor. Whoever adds ids locks event_ids before
-- looking at the slots. Of an id that is in several slots the last one tells the event, unless it is
-- before the mark: then the id is unknown.
create sequence storageapi.id_slot minvalue 1;
create table storageapi.id_slots (
	slot   integer primary key,
	since  bigint not null, -- the number that an event had at least when it began
	sealed boolean not null default false,
	below  bigint, -- of one that is sealed: more than the numbers of its events
	open   text[]  -- transactions whose end its sealing, or that of the one before, waits for
);
insert into storageapi.id_slots (slot, since) values (1, 0);
create table storageapi.event_ids (
	slot    integer not null,
	account text collate "C" not null,
	id      text collate "C" not null,
	event   bigint not null,
	primary key (slot, account, id)
) partition by list (slot);
create table storageapi.event_ids_1 partition of storageapi.event_ids for values in (1);
create table storageapi.event_ids_2 partition of storageapi.event_ids for values in (2);

-- How far bodies of before were removed.
insert into storageapi.marks (name, event) select 'bodies', event from storageapi.marks where name = 'payloads';

-- The last number of an event. A function, so that who asks only if need be does not prepare to read all parts.
create function storageapi.last_event() returns bigint language plpgsql set enable_seqscan = off as $last$
begin
	return (select event from storageapi.event_log order by event desc limit 1);
end
$last$;

-- Nothing is in slot 0: a publication whose snapshot is too old to tell the slots ends with it.
create table storageapi.event_ids_0 partition of storageapi.event_ids for values in (0);
create function storageapi.refuse_id() returns trigger language plpgsql as $refuse$
begin
	raise exception 'could not serialize access: the snapshot is older than the slots of ids' using errcode = '40001';
end
$refuse$;
create trigger event_ids_refused before insert on storageapi.event_ids_0 for each row execute function storageapi.refuse_id();

-- What nodes publish that do not know the slots is in them, too. If the id is known there, the
-- event is none: it goes, and so does what the statement has added for it.
create function storageapi.claim_id() returns trigger language plpgsql set enable_seqscan = off as $claim$
declare
	current integer;
	first   integer;
	mark    bigint;
	taken   boolean;
begin
	lock table storageapi.event_ids in row exclusive mode;
	select last_value into current from storageapi.id_slot;
	select coalesce(min(slot) filter (where not sealed), max(slot) + 1, 1) into first from storageapi.id_slots; -- 1: the snapshot is from before
	if first < current - 1 then
		raise exception 'could not serialize access: the snapshot is older than the slots of ids' using errcode = '40001';
	end if;
	select event into mark from storageapi.marks where name = 'ids';
	if new.event < mark then
		return null;
	end if;
	taken = exists (
		select from storageapi.id_slots s
		cross join lateral (select event from storageapi.event_ids where slot = s.slot and account = new.account and id = new.id limit 1) k
		where k.event >= mark);
	for n in first .. current loop
		exit when taken;
		insert into storageapi.event_ids as i (slot, account, id, event) values (n, new.account, new.id, new.event)
			on conflict (slot, account, id) do update set event = excluded.event where i.event < mark;
		taken = not found;
	end loop;
	if taken then
		delete from storageapi.event_log where layout = 0 and event = new.event;
	end if;
	return null;
end
$claim$;
create trigger events_claimed after insert on storageapi.events for each row when (new.known) execute function storageapi.claim_id();

create function storageapi.drop_skipped() returns trigger language plpgsql set enable_seqscan = off as $drop$
begin
	if not exists (select from storageapi.event_log where layout = 0 and event = new.event) then
		delete from storageapi.attempt_log where layout = 0 and webhook = new.webhook and event = new.event and number = 0;
	end if;
	return null;
end
$drop$;
create trigger attempts_of_none after insert on storageapi.attempts for each row
	when (new.state = 3 and new.number = 0) execute function storageapi.drop_skipped();

create or replace function storageapi.move_pending() returns trigger language plpgsql set enable_seqscan = off as $move$
declare
	of    smallint = (select storageapi.shard_of(account) from storageapi.webhooks where no = new.webhook);
	added boolean;
begin
	delete from storageapi.queue where webhook = new.webhook and event = new.event;
	if of is null or not exists (select from storageapi.event_log where event between new.event and new.event order by event limit 1) then
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

insert into storageapi.versions (version, oldest) values (23, 9);
