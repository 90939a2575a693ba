-- Removes the attempts of events, and counts both. The attempts of an event are removed together once its
-- body is removed: then there are no further attempts, except of expiring events.
-- $1 the event's number before which; $2 how many events, and events and attempts.
with next as materialized (
	select event, account, sum(matched + 1) over (order by event) - matched as before from storageapi.events
	where event >= (select event from storageapi.marks where name = 'attempts')
		and event < least($1, (select event from storageapi.marks where name = 'payloads'))
	order by event limit $2
), passed as materialized (
	select event, account from next where before <= $2
), marked as (
	update storageapi.marks set event = greatest(event, (select max(event) from passed) + 1) where name = 'attempts' and exists (select from passed)
), old as (
	select event, account from passed where not exists (select from storageapi.expiring where event = passed.event)
), told as materialized (
	select w.no, old.event from old
	cross join lateral (
		select no from storageapi.webhooks where account = old.account
		union all
		select no from storageapi.past_webhooks where account = old.account) w
), gone as (
	delete from storageapi.attempts a using told where a.webhook = any(array[told.no]) and a.event = told.event returning 1
)
select (select count(*) from passed) + (select count(*) from gone)
