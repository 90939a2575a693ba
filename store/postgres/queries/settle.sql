-- Settles what is pending, and returns the places of the settlements that were current: whose delivery is
-- pending with fewer attempts than they number, in a shard that the node owns. A node that has lost its
-- shards has no row, or does not own the shard (fencing). The attempts of what is past are not logged.
-- $1 to $18 the settlements, element by element, as input names them; $19 the node.
with input as materialized (
	select u.* from unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::smallint[], $5::integer[], $6::timestamptz[],
		$7::bigint[], $8::integer[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::text[], $15::boolean[],
		$16::bigint[], $17::boolean[], $18::text[])
	with ordinality as u (webhook, event, shard, outcome, number, started_at,
		took, status, class, error, response, retry_after, off, url, fails,
		rest, matters, event_id, place)
	cross join lateral (select account from storageapi.webhooks where no = u.webhook limit 1) w
	where exists (select from storageapi.nodes where node = $19) and exists (select from storageapi.shard_owners where shard = u.shard and node = $19)
		and not exists (select from storageapi.erasures where account = w.account)
), settled as (
	delete from storageapi.pending p using input i
	where i.outcome in (2, 3) and p.webhook = any(array[i.webhook]) and p.event = i.event and p.attempts < i.number
	returning i.*
), retried as (
	update storageapi.pending p set attempts = i.number, due = clock_timestamp() + i.retry_after * interval '1 microsecond'
	from input i
	where i.outcome = 1 and p.webhook = any(array[i.webhook]) and p.event = i.event and p.attempts < i.number
	returning i.*
), current as materialized (
	select * from settled
	union all
	select * from retried
	union all
	select i.* from input i cross join lateral (
		select from storageapi.pending where webhook = i.webhook and event = i.event limit 1) p where outcome = 0
), logged as (
	insert into storageapi.attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
	select event, webhook, number, outcome - 1, started_at, took, status, class, error, response from current
	where outcome > 0 and event >= (select event from storageapi.marks where name = 'attempts')
)
select place::integer - 1 from current
