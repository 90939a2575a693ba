-- Settles what is pending, and returns the places of the settlements that were current: whose delivery is
-- pending with fewer attempts than they number, in a shard that the node owns. A node that has lost its
-- shards has no row, or does not own the shard (fencing). The attempts of what is past are not logged.
--
-- The part that is named health changes webhooks as the settlements tell. The failing of a webhook is what
-- its settlements would make of it one after the other. Webhooks that change are locked in a fixed order. It
-- stores the notices of settlements that turn a webhook off, or end a failing that the host was warned of.
-- Most settlements say nothing about their webhooks, and are settled without this part.
-- $1 to $12 the settlements, element by element: webhooks, events, shards, outcomes, numbers, when they started
-- and what they took, statuses, classes, errors, responses, and when they are retried; $13 the node; for the
-- part, $14 why webhooks are turned off, $15 URLs, $16 whether they fail, $17 rests, $18 whether they matter,
-- $19 ids of events that failed, and $20 notices, as JSON. What few rows need is taken by its place.
with input as materialized (
	select u.*, ($1::bigint[])[place] as webhook, ($2::bigint[])[place] as event, ($4::smallint[])[place] as outcome,
		($5::integer[])[place] as number, ($6::timestamptz[])[place] as started_at
	from unnest($9::text[], $10::text[], $11::text[]) with ordinality as u (class, error, response, place)
	cross join lateral (select from storageapi.webhooks where no = ($1::bigint[])[place] limit 1) w
	where ($3::smallint[])[place] = any(array(
		select shard from storageapi.shard_owners
		where shard = any((select $3::smallint[])::smallint[]) and node = $13 and exists (select from storageapi.nodes where node = $13)))
), settled as (
	delete from storageapi.pending p using input i
	where i.outcome in (2, 3) and p.webhook = any(array[i.webhook]) and p.event = i.event and p.attempts < i.number
	returning i.*
), retried as (
	update storageapi.pending p set attempts = i.number, due = (select storageapi.confirmed_clock()) + ($12::bigint[])[i.place] * interval '1 microsecond'
	from input i
	where i.outcome = 1 and p.webhook = any(array[i.webhook]) and p.event = i.event and p.attempts < i.number
	returning i.*
), current as materialized (
	select * from settled
	union all
	select * from retried
	union all
	select i.* from input i cross join lateral (
		select from storageapi.pending where webhook = i.webhook and event = i.event limit 1) p where outcome = 0
), logged as (
	insert into storageapi.attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
	select event, webhook, number, outcome - 1, started_at, ($7::bigint[])[place], ($8::integer[])[place], class, error, response from current
	where outcome > 0 and event >= (select event from storageapi.marks where name = 'attempts')
-- begin health
), told as (
	select *, max(place) filter (where outcome = 2) over (partition by webhook, url) as proven
	from (
		select *, ($14::text[])[place] as off, ($15::text[])[place] as url, ($16::boolean[])[place] as fails, ($17::bigint[])[place] as rest,
			($19::text[])[place] as event_id
		from current where ($18::boolean[])[place]) c
), health as materialized (
	select webhook, url, bool_or(proven is not null) as proven,
		(array_agg(started_at order by place) filter (where outcome = 2))[1] as delivered,
		(array_agg(started_at order by place) filter (where fails and (proven is null or place > proven)))[1] as failing,
		array_agg(event_id order by place) filter (where fails and (proven is null or place > proven)) as failed,
		(array_agg(rest order by place desc) filter (where rest > 0 and (proven is null or place > proven)))[1] as rest,
		(array_agg(off order by place desc) filter (where off <> ''))[1] as off,
		(array_agg(started_at order by place desc) filter (where off <> ''))[1] as off_at,
		min(place) filter (where off <> '') as off_place, min(place) filter (where outcome = 2) as delivered_place
	from told group by webhook, url order by webhook, url
), changed as materialized (
	select w.*, h.* from health h
	cross join lateral (
		select no, active as was_active, warned_at is not null as was_warned from storageapi.webhooks where no = h.webhook and url = h.url and (
			h.failing is not null and (failing_since is null or h.proven or not failed_again and exists (select from unnest(h.failed) e where e <> failing_event)) or h.off is not null or h.rest is not null
			or h.proven and (proven_at is null or failing_since is not null or warned_at is not null or rests_until is not null))
		limit 1 for no key update) w
), updated as (
	update storageapi.webhooks w set
		proven_at = coalesce(w.proven_at, c.delivered),
		failing_since = coalesce(case when not c.proven then w.failing_since end, c.failing),
		failing_event = coalesce(nullif(case when c.proven then '' else w.failing_event end, ''), c.failed[1], ''),
		failed_again = not c.proven and w.failed_again or exists (
			select from unnest(c.failed) e where e <> coalesce(nullif(case when c.proven then '' else w.failing_event end, ''), c.failed[1])),
		warned_at = case when not c.proven then w.warned_at end,
		rests_until = case when c.rest is null and not c.proven then w.rests_until
			else greatest(case when not c.proven then w.rests_until end, (select storageapi.confirmed_clock()) + c.rest * interval '1 microsecond') end,
		active = w.active and c.off is null, off_reason = coalesce(c.off, w.off_reason), off_at = coalesce(c.off_at, w.off_at), version = w.version + 1
	from changed c where w.no = any(array(select no from changed)) and w.no = c.no and w.url = c.url
), noticed as (
	insert into storageapi.audit (account, id, pending, at, action, target_kind, target_id, target_name, target_hint,
		actor_kind, actor_id, actor_name, actor_hint, changed, turned,
		request_id, client_address, object, reason, since, until)
	select account, id, pending, at, action, target_kind, target_id, target_name, target_hint,
		actor_kind, actor_id, actor_name, actor_hint, changed, turned,
		request_id, client_address, object, reason, since, until
	from (
		select n.* from changed c join jsonb_to_recordset($20::text::jsonb) as n (account text, id text, pending boolean, at timestamptz,
				action text, target_kind text, target_id text, target_name text, target_hint text,
				actor_kind text, actor_id text, actor_name text, actor_hint text, changed text[], turned text, request_id text,
				client_address text, object text, reason text, since timestamptz, until timestamptz, place integer, off boolean)
			on n.off and n.place = c.off_place and c.was_active or not n.off and n.place = c.delivered_place and c.was_warned
		order by n.place, n.off) n
	on conflict (account, id) do nothing
-- end health
)
select place::integer - 1 from current
