-- Stores results of attempts, and returns the places of the results that count. A result counts if
-- its delivery is pending in a shard that the node owns and has fewer attempts than the result's
-- number. A node that has lost its shards has no row, or does not own the shard (fencing). Attempts
-- of events before the mark of attempts are not logged.
-- $1 to $12 the results, as parallel lists: webhooks, events, shards, effects, numbers, start
-- times, durations, statuses, error classes, errors, responses, and waits until the retries; $13
-- the node. Values that few rows need are looked up by place.
with input as materialized (
	select u.*, ($1::bigint[])[place] as webhook, ($2::bigint[])[place] as event, ($4::smallint[])[place] as outcome,
		($5::integer[])[place] as number, ($6::timestamptz[])[place] as started_at
	from unnest($9::text[], $10::text[], $11::text[]) with ordinality as u (class, error, response, place)
	cross join lateral (select from storageapi.webhooks where no = ($1::bigint[])[place] limit 1) w
	where ($3::smallint[])[place] = any(array(
		select shard from storageapi.shard_owners
		where shard = any((select $3::smallint[])::smallint[]) and node = $13 and exists (select from storageapi.nodes where node = $13)))
), settled as (
	delete from storageapi.pending p using input i
	where i.outcome in (2, 3) and p.webhook = any(array[i.webhook]) and p.event = i.event and p.attempts < i.number
	returning i.*
), retried as (
	update storageapi.pending p set attempts = i.number, due = (select storageapi.confirmed_clock()) + ($12::bigint[])[i.place] * interval '1 microsecond'
	from input i
	where i.outcome = 1 and p.webhook = any(array[i.webhook]) and p.event = i.event and p.attempts < i.number
	returning i.*
), current as materialized (
	select * from settled
	union all
	select * from retried
), logged as (
	insert into storageapi.attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
	select event, webhook, number, outcome - 1, started_at, ($7::bigint[])[place], ($8::integer[])[place], class, error, response from current
	where event >= (select event from storageapi.marks where name = 'attempts')
)
select place::integer - 1 from current
