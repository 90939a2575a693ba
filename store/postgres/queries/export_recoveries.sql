-- Selects recoveries by number, each with the event with which it continues, if the event is known.
-- $1 the number after which to begin; $2 the account, or empty for all; $3 the maximum number.
select r.no, r.id, r.account, r.webhook_id, r.states, r.from_at, r.to_at, r.created_at, r.recovered, r.done, coalesce(n.id, '')
from storageapi.recoveries r
left join lateral (
	select e.id from (
		(select event from storageapi.pending where webhook = r.webhook and event >= r.next order by event limit 1)
		union all
		(select event from storageapi.attempt_log where webhook = r.webhook
			and event >= greatest(r.next, (select event from storageapi.marks where name = 'attempts')) order by event limit 1)) d
	cross join lateral (
		select id, known from storageapi.event_log where event between d.event and d.event order by event limit 1) e
	where not r.done and e.known and d.event >= (select event from storageapi.marks where name = 'ids')
		and exists (select from storageapi.webhooks where no = r.webhook) order by d.event limit 1) n on true
where r.no > $1 and ($2 = '' or r.account = $2) order by r.no limit $3
