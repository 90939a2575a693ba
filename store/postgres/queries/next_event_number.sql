-- Returns the number that an event would get now, and the number of the current time. The first is
-- lower only if the last part ends within 5 minutes: then the event clock is stopped. See
-- enqueue.sql for the microsecond.
-- $1 the latest time that counts as now.
with tick as materialized (
	select now, setval(clock,
		greatest(least(now, ends / 4096 - 300000000), mark + 1, case when mark > now + 1000 then storageapi.last_event() / 4096 + 1 end)) as at
	from (
		select (extract(epoch from least(clock_timestamp(), $1::timestamptz) - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint as now,
			(select event from storageapi.marks where name = 'parts') as ends,
			last_value as mark, tableoid::regclass as clock from storageapi.event_clock
	) clock
)
select tick.at * 4096 + nextval((select tableoid::regclass from storageapi.event_numbers)), tick.now * 4096 from tick
