-- Lists events of an account, the newest first. Each type is looked for in the index.
-- $1 the account; $2 the number from which on and $3 before which; $4 types, null: those that it has;
-- $5 how many.
with recursive has as (
	(select type from storageapi.events where $4::text[] is null and account = $1 order by type limit 1)
	union all
	select (select type from storageapi.events where account = $1 and type > has.type order by type limit 1) from has where has.type is not null
), types as (
	select type from has where type is not null union all select distinct unnest($4::text[])
)
select e.* from types cross join lateral (
	select event, id, type, at, body is not null from storageapi.events
	where account = $1 and type = types.type and event >= $2 and event < $3 order by event desc limit $5) e
order by event desc limit $5
