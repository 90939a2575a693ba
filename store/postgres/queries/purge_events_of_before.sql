-- Removes events that are past of before there were parts, the oldest first, with their attempts, and returns a row for each.
-- $1 how many events.
with old as materialized (
	select event, account from storageapi.event_log
	where layout = 0 and event < (select min(event) from storageapi.marks where name in ('attempts', 'ids', 'bodies'))
	order by event limit $1
), told as materialized (
	select w.no, old.event from old
	cross join lateral (
		select no from storageapi.webhooks where account = old.account
		union all
		select no from storageapi.past_webhooks where account = old.account) w
), untold as (
	delete from storageapi.attempt_log a using told
	where a.webhook = any(array[told.no]) and a.event = told.event
	returning a.event
), gone as (
	delete from storageapi.event_log where layout = 0 and event = any(array(select event from old))
)
select event from old union all select event from untold
