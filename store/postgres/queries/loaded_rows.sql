-- Selects, as lists, which of the deliveries to load are still pending and the versions of their
-- existing webhooks, and also the confirmed time. A row for each delivery would take longer. The
-- webhooks of an account that is being erased do not exist.
-- The subselects hide the lengths of the arrays from the planner, which would otherwise plan each
-- call (see plain.go).
-- $1 webhooks and $2 events, as parallel lists.
select p.places, p.attempts, p.before, p.due, w.nos, w.versions, (select storageapi.confirmed_clock())
from (
	select array_agg(c.place::integer - 1) as places, array_agg(p.attempts) as attempts, array_agg(p.before) as before, array_agg(p.due) as due
	from unnest((select $1::bigint[]), (select $2::bigint[])) with ordinality as c (webhook, event, place)
	cross join lateral (
		select attempts, before, due from storageapi.pending where webhook = c.webhook and event = c.event limit 1) p) p
cross join (
	select array_agg(no) as nos, array_agg(version) as versions
	from storageapi.webhooks where no = any((select $1::bigint[])::bigint[])) w
