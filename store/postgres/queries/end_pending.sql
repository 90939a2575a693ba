-- Settles pending deliveries as dead, and returns those that it has settled.
-- $1 webhooks and $2 events, element by element; $3 when; $4 and $5 class and reason of the error.
with gone as (
	delete from storageapi.pending p using unnest($1::bigint[], $2::bigint[]) as i (webhook, event)
	where p.webhook = any(array[i.webhook]) and p.event = i.event
	returning p.webhook, p.event
), logged as (
	insert into storageapi.attempts (event, webhook, number, state, started_at, took, status, class, error, response)
	select event, webhook, 1 + coalesce((select max(number) from storageapi.attempts a where a.webhook = gone.webhook and a.event = gone.event), 0),
		2, $3, 0, 0, $4, $5, '' from gone
)
select webhook, event from gone
