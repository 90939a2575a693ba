-- Lists events of an account, newest first or, with asc in place of desc, oldest first. It reads
-- each type through the index.
-- $1 the account; $2 the lowest event number and $3 the number below which events are listed; $4
-- types, or null for all types that the account has; $5 the maximum number.
with recursive has as (
	(select type from storageapi.event_log where $4::text[] is null and account = $1 order by type limit 1)
	union all
	select (select type from storageapi.event_log where account = $1 and type > has.type order by type limit 1) from has where has.type is not null
), types as (
	select type from has where type is not null union all select distinct unnest($4::text[])
), listed as (
	select e.* from types cross join lateral (
		select event, id, type, resource, at from storageapi.event_log
		where account = $1 and type = types.type and event < $3
			and event >= greatest($2, (select min(event) from storageapi.marks where name in ('attempts', 'ids')))
		order by event desc limit $5) e
	order by event desc limit $5
)
select l.event, l.id, l.type, coalesce(l.resource, ''), l.at, b.event is not null and l.event >= (select event from storageapi.marks where name = 'payloads')
from listed l
left join lateral (
	select event from storageapi.event_bodies where event between l.event and l.event order by event limit 1) b on true
order by l.event desc
