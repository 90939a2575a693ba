-- Selects what is claimed: what is pending of it still, its webhooks' versions, and its events, as many bodies
-- as are allowed, and that of the first. What is past has none.
-- The planner is not to see how long the arrays are: it would make a plan for each call (see plain.go).
-- $1 webhooks and $2 events, element by element; $3 how many bytes the bodies may have together.
select c.place::integer - 1, w.version, p.attempts, p.due, c.id, c.type, c.at, c.trace,
	case when c.place = 1 or c.bytes <= $3 then c.body end, c.body is not null
from (
	select *, sum(coalesce(octet_length(body), 0)) over (order by place) as bytes
	from (
		select c.webhook, c.event_no, c.place, e.id, e.type, e.at, e.trace,
			case when c.event_no >= (select event from storageapi.marks where name = 'payloads') then coalesce(b.body, e.body) end as body
		from unnest((select $1::bigint[]), (select $2::bigint[])) with ordinality as c (webhook, event_no, place)
		left join lateral (
			select id, type, at, trace, body from storageapi.event_log where event between c.event_no and c.event_no order by event limit 1) e on true
		left join lateral (
			select body from storageapi.event_bodies where event between c.event_no and c.event_no order by event limit 1) b on true) c) c
left join lateral (
	select attempts, due from storageapi.pending where webhook = c.webhook and event = c.event_no limit 1) p on true
left join lateral (
	select version from (select version, account from storageapi.webhooks where no = c.webhook limit 1) h
	where not exists (select from storageapi.erasures where account = h.account)) w on true
order by c.place
