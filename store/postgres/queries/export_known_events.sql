-- Selects the numbers of an account's events whose ids are known, by their ids. An id may be in two slots,
-- and in a slot without an event.
-- $1 the id after which; $2 how many; $3 the account.
select event from (
	select i.id, i.event from storageapi.id_slots s
	cross join lateral (
		select k.id, k.event from storageapi.event_ids k
		cross join lateral (
			select event from storageapi.event_log where event between k.event and k.event order by event limit 1) e
		where k.slot = s.slot and k.account = $3 and k.id > $1
			and k.event >= (select event from storageapi.marks where name = 'ids') order by k.id limit $2) i
	group by i.id, i.event) known
order by id limit $2
