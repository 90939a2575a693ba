-- Changes the health of webhooks in shards that the node owns, if they still have the version on
-- which the change is based. It also stores the audit entries of the changes, adds the webhooks to
-- the change feed, and returns the places of the changes that it made. It locks the webhooks in a
-- fixed order.
-- $1 to $12 the changes, as parallel lists: accounts, ids, shards, versions, and the health in the
-- order of the statement; $13 the node; $14 audit entries, as JSON, with the places of their
-- changes; $15 changeWebhook.
with input as materialized (
	select w.no, w.version, u.shard, u.place
	from unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[]) with ordinality as u (account, id, shard, version, place)
	cross join lateral (
		select no, version from storageapi.webhooks where account = u.account and id = u.id and version = u.version limit 1) w
	where u.shard = any(array(
		select shard from storageapi.shard_owners
		where shard = any((select $3::smallint[])::smallint[]) and node = $13 and exists (select from storageapi.nodes where node = $13)))
), first as materialized (
	select distinct on (no) * from input order by no, place
), current as materialized (
	select f.* from first f
	cross join lateral (
		select no from storageapi.webhooks where no = f.no and version = f.version limit 1 for no key update) w
), changed as (
	update storageapi.webhooks w set
		active = ($5::boolean[])[c.place], off_reason = ($6::text[])[c.place], off_at = ($7::timestamptz[])[c.place],
		proven_at = ($8::timestamptz[])[c.place], failing_since = ($9::timestamptz[])[c.place], failing_event = ($10::text[])[c.place],
		failed_again = ($11::boolean[])[c.place], warned_at = ($12::timestamptz[])[c.place], version = w.version + 1
	from current c where w.no = any(array(select no from current)) and w.no = c.no
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $15::smallint, array_agg(shard), array_agg(no), array_agg(0) from current having count(*) > 0
), noticed as (
	insert into storageapi.audit (account, id, pending, at, action, target_kind, target_id, fields)
	select n.account, n.id, n.pending, n.at, n.action, n.target_kind, n.target_id, decode(n.fields, 'base64')
	from current c join jsonb_to_recordset($14::text::jsonb) as n (account text, id text, pending boolean, at timestamptz,
			action text, target_kind text, target_id text, fields text, place integer)
		on n.place = c.place
	order by n.place
	on conflict (account, id) do nothing
)
select place::integer - 1 from current
