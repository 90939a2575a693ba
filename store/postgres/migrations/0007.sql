-- The deliveries that failed: whose last attempt did, or that were skipped. In a table of
-- its own, since an index of attempts would lock it while it is made. Triggers keep it, so
-- that nodes of older versions do, too; most attempts succeed at once and fire none.
create table storageapi.failures (
	webhook bigint not null,
	event   bigint not null,
	primary key (webhook, event)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);

create function storageapi.note_failure() returns trigger language plpgsql set enable_seqscan = off as $failures$
begin
	if tg_op = 'DELETE' then
		delete from storageapi.failures where webhook = old.webhook and event = old.event
			and not exists (select from storageapi.attempts where webhook = old.webhook and event = old.event);
	elsif new.state = 1 then
		delete from storageapi.failures where webhook = new.webhook and event = new.event;
	else
		insert into storageapi.failures (webhook, event) values (new.webhook, new.event) on conflict do nothing;
	end if;
	return null;
end
$failures$;
create trigger attempts_logged after insert on storageapi.attempts for each row
	when (new.state <> 1 or new.number > 1) execute function storageapi.note_failure();
create trigger attempts_removed after delete on storageapi.attempts for each row
	when (old.state <> 1) execute function storageapi.note_failure();

insert into storageapi.versions (version) values (7);
