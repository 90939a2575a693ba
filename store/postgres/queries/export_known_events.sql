-- Selects the numbers of an account's events whose ids are known, in the order of ids. Several
-- parts may have the same ID, and its event may no longer exist.
-- $1 the id after which to begin; $2 the maximum number; $3 the account.
select event from (
	select i.id, i.event from storageapi.partitions p
	cross join lateral (
		select k.id, k.event from storageapi.event_ids k
		cross join lateral (
			select event from storageapi.event_log where event between k.event and k.event order by event limit 1) e
		where k.part = p.least and k.account = $3 and k.id > $1
			and k.event >= (select event from storageapi.marks where name = 'ids') order by k.id limit $2) i
	where p.kind = 'event_ids') known
order by id limit $2
