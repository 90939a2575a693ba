-- Selects the first of some events, as many as fit into a page: transfer.PageBytes, 4 MiB.
-- $1 the events' numbers.
with page as (
	select event, sum(bytes) over (order by place) - bytes as before from (
		select i.event, i.place, coalesce(e.body, 0) + 128 * e.matched as bytes
		from unnest($1::bigint[]) with ordinality as i (event, place)
		cross join lateral (select octet_length(body) as body, matched from storageapi.events where event = i.event limit 1) e) p)
select e.event, e.account, e.id, e.type, e.at, e.matched, e.known, e.body, coalesce(e.trace, '')
from page cross join lateral (select * from storageapi.events where event = page.event limit 1) e
where before < 4194304
