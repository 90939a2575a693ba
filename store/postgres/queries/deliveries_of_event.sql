-- Selects an event's deliveries and their attempts, in the order of webhooks and numbers: one row at
-- least, if there is such an event, with no webhook.
-- $1 the account; $2 the event's id.
with hook as (
	select no, id, true as there from storageapi.webhooks where account = $1
	union all
	select no, id, false from storageapi.past_webhooks where account = $1
)
select e.event, e.id, '', e.type, null::timestamptz, null::integer, null::integer, null::integer, null::timestamptz, null::bigint,
	null::text, null::text, null::text
from storageapi.events e where e.account = $1 and e.id = $2 and e.known
union all
select e.event, e.id, h.id, e.type, q.due, a.number, a.state, a.status, a.started_at, a.took, a.class, a.error, a.response
from storageapi.events e
cross join hook h
left join lateral (select due from storageapi.pending where h.there and webhook = h.no and event = e.event limit 1) q on true
left join lateral (select * from storageapi.attempts where event = e.event and webhook = h.no order by number) a on true
where e.account = $1 and e.id = $2 and e.known and (q.due is not null or a.event is not null)
order by 3, 6
