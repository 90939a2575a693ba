-- Selects an event's deliveries and their attempts, by webhook id and attempt number. If the event
-- exists, the first row has an empty webhook id and no delivery.
-- $1 the account; $2 the event's id.
with named as materialized (
	select event from (
		select k.event from storageapi.partitions p
		cross join lateral (select event from storageapi.event_ids where part = p.least and account = $1 and id = $2 limit 1) k
		where p.kind = 'event_ids' order by p.least desc limit 1
	) last where event >= (select event from storageapi.marks where name = 'ids')
), entry as materialized (
	select e.event, e.id, e.type, e.resource from named i
	cross join lateral (select event, id, type, coalesce(resource, '') as resource from storageapi.event_log where event between i.event and i.event order by event limit 1) e
), hook as (
	select no, id, true as there from storageapi.webhooks where account = $1
	union all
	select no, id, false from storageapi.past_webhooks where account = $1
)
select e.event, e.id, '', e.type, e.resource, null::timestamptz, null::integer, null::integer, null::integer, null::timestamptz, null::bigint,
	null::text, null::text, null::text
from entry e
union all
select e.event, e.id, h.id, e.type, e.resource, q.due, a.number, a.state, a.status, a.started_at, a.took, a.class, a.error, a.response
from entry e
cross join hook h
left join lateral (select due from storageapi.pending where h.there and webhook = h.no and event = e.event limit 1) q on true
left join lateral (
	select * from storageapi.attempt_log where event = e.event and webhook = h.no and event >= (select event from storageapi.marks where name = 'attempts')
	order by number) a on true
where q.due is not null or a.event is not null
order by 3, 7
