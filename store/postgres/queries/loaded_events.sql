-- Selects the events of the deliveries to load and then their bodies, oldest first. It selects as
-- many bodies as fit into $4 bytes, and at least one. A body that does not fit is null, and a
-- purged body has no row.
-- One scan of each table from the lowest to the highest event takes half as long as a lookup for
-- each event. The scans are ordered, so that the planner uses no other index. The subselects hide
-- the length of the array from the planner, which would otherwise plan each call (see plain.go).
-- $1 the events; $2 the lowest and $3 the highest of them; $4 the maximum total size of the bodies.
(select event, true, id, type, at, coalesce(trace, ''), coalesce(resource, ''), null::bytea
from storageapi.event_log where event = any((select $1::bigint[])::bigint[]) and event between $2 and $3 order by event)
union all
select event, false, '', '', null, '', '', case when bytes <= $4 or bytes = octet_length(body) then body end
from (
	select event, body, sum(octet_length(body)) over (rows unbounded preceding) as bytes
	from (
		select event, body from storageapi.event_bodies
		where event = any((select $1::bigint[])::bigint[]) and event between $2 and $3 order by event) b
	where event >= (select event from storageapi.marks where name = 'payloads')) b
