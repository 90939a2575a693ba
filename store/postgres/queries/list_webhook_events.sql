-- Lists events with a delivery to a webhook, newest first or, with asc in place of desc, oldest
-- first.
-- $1 the webhook's number; $2 the lowest event number and $3 the number below which events are
-- listed; $4 the maximum number.
with listed as (
	select event from (
		(select event from storageapi.pending where webhook = $1 and event < $3
			and event >= greatest($2, (select event from storageapi.marks where name = 'attempts')) order by event desc limit $4)
		union
		(select event from storageapi.attempt_log where webhook = $1 and event < $3
			and event >= greatest($2, (select event from storageapi.marks where name = 'attempts')) group by event order by event desc limit $4)
	) both_of_them order by event desc limit $4
)
select l.event, e.id, e.type, coalesce(e.resource, ''), e.at, b.event is not null and l.event >= (select event from storageapi.marks where name = 'payloads')
from listed l
cross join lateral (
	select id, type, resource, at from storageapi.event_log where event between l.event and l.event order by event limit 1) e
left join lateral (
	select event from storageapi.event_bodies where event between l.event and l.event order by event limit 1) b on true
order by l.event desc
