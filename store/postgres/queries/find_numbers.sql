-- For each event of a list, selects its place, whether it exists, and the next free number of its
-- millisecond, or 0 if the previous event of the list has the same millisecond. An event with a
-- known id exists if its id does. An event with a forgotten id, or before the mark of the IDs,
-- exists if its millisecond has an event with that id.
-- $1 accounts, $2 ids, $3 whether the ids are known, and $4 the first numbers of the milliseconds,
-- as parallel lists.
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
