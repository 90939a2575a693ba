-- Settles pending deliveries whose payload has expired as dead, oldest first, and returns them. It
-- finds them in the index on shard and event + 0. It logs an attempt for each delivery, except for
-- events before the mark of attempts.
-- $1 the maximum number; $2 the time of the attempts; $3 the class and $4 the reason of their
-- error.
with old as materialized (
	select q.webhook, q.event
	from (
		select p.webhook, p.event
		from storageapi.shard_owners o
		cross join lateral (
			select webhook, event from storageapi.pending
			where shard = o.shard and event + 0 < (select event from storageapi.marks where name = 'payloads')
			order by shard, event + 0 limit $1) p
		order by p.event limit $1) q
	cross join lateral (select from storageapi.webhooks where no = q.webhook limit 1) w
), gone as (
	delete from storageapi.pending p using old
	where p.webhook = any(array[old.webhook]) and p.event = old.event
	returning p.webhook, p.event
), logged as (
	insert into storageapi.attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
	select gone.event, gone.webhook, 1 + a.number, 2, $2, 0, 0, $3, $4, '' from gone
	cross join lateral (
		select coalesce(max(number), 0) as number from storageapi.attempt_log where webhook = gone.webhook and event = gone.event) a
	where gone.event >= (select event from storageapi.marks where name = 'attempts')
)
select webhook, event from gone
