-- Tells of events, by their places in a list, whether they are there, and the number of the next one of their
-- millisecond: 0 if the event before in the list is of the same. Those whose id is known are there by it,
-- others by the millisecond, too.
-- $1 accounts, $2 ids, $3 whether these are known, and $4 the first numbers of the milliseconds, element by
-- element.
select i.place - 1,
	i.known and exists (
		select from storageapi.partitions p
		cross join lateral (select event from storageapi.event_ids where part = p.least and account = i.account and id = i.id limit 1) k
		where p.kind = 'event_ids' and k.event >= mark.event)
	or (not i.known or i.least < mark.event) and exists (
		select from storageapi.event_log where event >= i.least and event < i.least + 4096000 and account = i.account and id = i.id),
	case when lag(i.least) over (order by i.place) = i.least then 0
		else coalesce((select event + 1 from storageapi.event_log where event >= i.least and event < i.least + 4096000 order by event desc limit 1), i.least) end
from unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[]) with ordinality as i (account, id, known, least, place)
cross join (select event from storageapi.marks where name = 'ids') mark
order by i.place
