-- Makes settled deliveries of a webhook pending again and due now, and returns their events. It
-- selects deliveries that are in one of the given states, are not pending, and have a payload.
-- $1 the webhook; $2 its shard; $3 events; $4 states; $5 whether the deliveries count as recovered.
insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
select $1, i.event, $2, $5, (select storageapi.confirmed_clock()), a.number, a.number
from unnest($3::bigint[]) as i (event)
cross join lateral (
	select max(number) as number, (array_agg(state order by number desc) filter (where state > 0))[1] as state
	from storageapi.attempt_log where event = i.event and webhook = $1) a
cross join lateral (
	select event from storageapi.event_bodies where event between i.event and i.event order by event limit 1) e
where a.state = any($4::smallint[]) and i.event >= (select event from storageapi.marks where name = 'payloads')
on conflict (webhook, event) do nothing
returning event
