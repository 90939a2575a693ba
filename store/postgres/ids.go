package postgres

// eventOf selects the number of the event of the account $1 with the id $2, if the id is known.
const eventOf = `
	select event from (
		select k.event from storageapi.partitions p
		cross join lateral (select event from storageapi.event_ids where part = p.least and account = $1 and id = $2 limit 1) k
		where p.kind = 'event_ids' order by p.least desc limit 1
	) last where event >= (select event from storageapi.marks where name = 'ids')`
