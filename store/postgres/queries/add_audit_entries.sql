-- Stores audit entries in the order of the list, except entries whose account and id exist, and
-- returns how many it stored. An entry with the action $2 is stored only if its key exists and
-- still expires at the entry's until or, if the entry's reason is lifetime, expires later or never.
-- $1 the list, as JSON; $2 the action of entries that announce the expiry of keys, or empty.
with added as (
	insert into storageapi.audit (account, id, pending, at, action, target_kind, target_id, fields, routine, stored_at)
	select account, id, pending, at, action, target_kind, target_id, decode(fields, 'base64'), routine, coalesce(stored_at, clock_timestamp())
	from jsonb_to_recordset($1::text::jsonb) as n (account text, id text, pending boolean, at timestamptz, action text,
		target_kind text, target_id text, fields text, routine boolean, stored_at timestamptz, reason text, until timestamptz)
	where n.action <> $2::text or (
		select true from storageapi.keys where account = n.account and id = n.target_id and next is null and (
			expires_at = n.until and n.reason <> 'lifetime' or n.reason = 'lifetime' and (expires_at is null or expires_at > n.until)) limit 1)
	on conflict (account, id) do nothing returning 1
)
select count(*) from added
