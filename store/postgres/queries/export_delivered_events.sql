-- Selects the numbers of events with pending or settled deliveries to some webhooks. It reads a
-- limited number of deliveries of each webhook, and returns no events beyond the first such limit,
-- so that it skips none.
-- $1 the number after which to begin; $2 the maximum number of events; $3 live webhooks and $4
-- deleted ones; $5 the maximum number of deliveries read per webhook.
with source as materialized (
	select w.no, 0 as of, q.event, row_number() over (partition by w.no order by q.event) as place
	from unnest($3::bigint[]) as w (no)
	cross join lateral (select event from storageapi.pending where webhook = w.no and event > $1 order by event limit $5) q
	union all
	select w.no, 1, a.event, row_number() over (partition by w.no order by a.event)
	from unnest($3::bigint[] || $4::bigint[]) as w (no)
	cross join lateral (
		select event from storageapi.attempt_log where webhook = w.no and event > $1
			and event >= (select event from storageapi.marks where name = 'attempts') group by event order by event limit $5) a
)
select distinct event from source
where event <= (select coalesce(min(event), 9223372036854775807) from source where place = $5)
order by event limit $2
