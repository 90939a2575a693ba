-- Lists events of an account, the newest first; with asc for desc, the oldest first. Each type is looked for in the index.
-- $1 the account; $2 the number from which on and $3 before which; $4 types, null: those that it has;
-- $5 how many.
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
