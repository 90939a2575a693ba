-- Selects the first events of a list, in its order, as many as fit into a page of
-- transfer.PageBytes, 4 MiB.
-- $1 the events' numbers.
with page as (
	select event, place, sum(bytes) over (order by place) - bytes as before from (
		select i.event, i.place, coalesce(b.body, 0) + 128 * e.matched as bytes
		from unnest($1::bigint[]) with ordinality as i (event, place)
		cross join lateral (
			select matched from storageapi.event_log
			where event between i.event and i.event order by event limit 1) e
		left join lateral (
			select octet_length(body) as body from storageapi.event_bodies
			where event between i.event and i.event order by event limit 1) b on true) p)
select e.event, e.account, e.id, e.type, e.at, e.matched,
	e.known and e.event >= (select event from storageapi.marks where name = 'ids'),
	case when e.event >= (select event from storageapi.marks where name = 'payloads') then b.body end, coalesce(e.trace, ''), coalesce(e.resource, '')
from page
cross join lateral (select * from storageapi.event_log where event between page.event and page.event order by event limit 1) e
left join lateral (select body from storageapi.event_bodies where event between page.event and page.event order by event limit 1) b on true
where before < 4194304 order by place
