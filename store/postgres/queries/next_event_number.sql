-- Returns the number that an event would have now. See enqueue for the microsecond.
with tick as materialized (
	select setval(clock,
		greatest(now, mark + 1, case when mark > now + 1000 then (select event / 4096 + 1 from storageapi.event_log order by event desc limit 1) end)) as at
	from (
		select (extract(epoch from clock_timestamp() - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint as now,
			last_value as mark, tableoid::regclass as clock from storageapi.event_clock
	) clock
)
select tick.at * 4096 + nextval((select tableoid::regclass from storageapi.event_numbers)) from tick
