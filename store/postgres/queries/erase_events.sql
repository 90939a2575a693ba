-- Removes events of an account that is being erased, with their deliveries. It finds the events
-- that the account still has, and events that were delivered to its webhooks, which are all
-- deleted. Webhooks without an id were deleted by the erasure; pending deliveries to the other
-- webhooks are not counted. It returns how many events and deliveries it removed, and how many
-- events it found. Of the logs it reads only the parts with these events.
-- $1 the account; $2 the maximum number of events.
with hooks as materialized (
	select no, id from storageapi.past_webhooks where account = $1
), own as materialized (
	select event, type from storageapi.event_log where account between $1 and $1 order by account limit $2
), old as materialized (
	select event from (
		select event from own
		union (select a.event from hooks cross join lateral (select event from storageapi.attempt_log where webhook = hooks.no limit $2) a limit $2)
		union (select q.event from hooks cross join lateral (select event from storageapi.pending where webhook = hooks.no limit $2) q limit $2)
	) found limit $2
), place as materialized (
	select hooks.no, old.event from old cross join hooks
), owed as (
	delete from storageapi.pending p using place where p.webhook = any(array[place.no]) and p.event = place.event
	returning p.webhook, p.event
), told as (
	delete from storageapi.attempt_log where webhook = any(array(select no from hooks)) and event = any(array(select event from old))
		and event between (select min(event) from old) and (select max(event) from old)
	returning webhook, event, state
), bodies as (
	delete from storageapi.event_bodies where event = any(array(select event from old))
		and event between (select min(event) from old) and (select max(event) from old)
), gone as (
	delete from storageapi.event_log where account = $1 and type = any(array(select type from own)) and event = any(array(select event from own))
		and event between (select min(event) from own) and (select max(event) from own)
	returning 1
), deliveries as (
	select webhook, event from owed where webhook in (select no from hooks where id = '')
	union select webhook, event from told where state > 0
)
select (select count(*) from gone), (select count(*) from deliveries), (select count(*) from old)
