-- Selects the events of what is loaded, and then their bodies: as many as are allowed, the oldest first, and
-- one at least. A body that is there and not allowed is null; what is past has none.
-- Each table is read by one scan of its parts from the least event to the greatest, which takes half of what a
-- lookup for each event takes. In order, so that no other index is planned (see plain.go). The planner is not
-- to see how long the array is, for which it would plan each call.
-- $1 the events; $2 the least and $3 the greatest of them; $4 how many bytes the bodies may have together.
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
