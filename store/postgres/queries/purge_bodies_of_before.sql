-- Removes bodies that are past of events of before there were parts, the oldest first, and returns those events.
-- $1 how many events.
with old as materialized (
	select event from storageapi.event_log
	where layout = 0 and event >= (select event from storageapi.marks where name = 'bodies') and event < (select event from storageapi.marks where name = 'payloads')
	order by event limit $1
), marked as (
	update storageapi.marks set event = greatest(event, (select max(event) from old) + 1) where name = 'bodies' and exists (select from old)
), removed as (
	update storageapi.event_log set body = null where layout = 0 and event = any(array(select event from old)) and body is not null
)
select event from old
