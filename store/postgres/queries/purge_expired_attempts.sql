-- Removes the attempts of events that expired after other attempts of their time were removed.
-- $1 the events.
with old as (
	select e.event, e.account from unnest($1::bigint[]) as i (event)
	cross join lateral (select event, account from storageapi.events where event between i.event and i.event order by event limit 1) e
	where e.event < (select event from storageapi.marks where name = 'attempts')
		and not exists (select from storageapi.expiring where event = e.event)
), told as materialized (
	select w.no, old.event from old
	cross join lateral (
		select no from storageapi.webhooks where account = old.account
		union all
		select no from storageapi.past_webhooks where account = old.account) w
)
delete from storageapi.attempts a using told where a.webhook = any(array[told.no]) and a.event = told.event
