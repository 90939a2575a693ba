-- Settles pending deliveries as dead, and returns those that it has settled. The attempts of what is past are
-- not logged.
-- $1 webhooks and $2 events, element by element; $3 when; $4 and $5 class and reason of the error.
with gone as (
	delete from storageapi.pending p using unnest($1::bigint[], $2::bigint[]) as i (webhook, event)
	where p.webhook = any(array[i.webhook]) and p.event = i.event
	returning p.webhook, p.event
), logged as (
	insert into storageapi.attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
	select gone.event, gone.webhook, 1 + a.number, 2, $3, 0, 0, $4, $5, '' from gone
	cross join lateral (
		select coalesce(max(number), 0) as number from storageapi.attempt_log where webhook = gone.webhook and event = gone.event) a
	where gone.event >= (select event from storageapi.marks where name = 'attempts')
)
select webhook, event from gone
