-- Selects deliveries to a webhook and their attempts, newest event first.
-- $1 the webhook's number and $2 its id; $3 the lowest event number; $4 the event number below
-- which to begin; $5 the maximum number of events.
with listed as (
	select event from (
		(select event from storageapi.pending where webhook = $1 and event < $4
			and event >= greatest($3, (select event from storageapi.marks where name = 'attempts')) order by event desc limit $5)
		union
		(select event from storageapi.attempt_log where webhook = $1 and event < $4
			and event >= greatest($3, (select event from storageapi.marks where name = 'attempts')) group by event order by event desc limit $5)
	) both_of_them order by event desc limit $5
)
select e.event, e.id, $2::text, e.type, coalesce(e.resource, ''), q.due, a.number, a.state, a.status, a.started_at, a.took, a.class, a.error, a.response
from listed
cross join lateral (
	select * from storageapi.event_log where event between listed.event and listed.event order by event limit 1) e
left join lateral (select due from storageapi.pending where webhook = $1 and event = listed.event limit 1) q on true
left join lateral (select * from storageapi.attempt_log where event = listed.event and webhook = $1 order by number) a on true
order by e.event desc, a.number
