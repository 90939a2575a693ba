-- Stores notices in the order of a list, except those that there are, and counts them.
-- $1 the list, as JSON.
with added as (
	insert into storageapi.audit (account, id, pending, at, action, target_kind, target_id, actor_kind, actor_id, changed,
		request_id, client_address, object, reason, since, until)
	select account, id, pending, at, action, target_kind, target_id, actor_kind, actor_id, changed,
		request_id, client_address, object, reason, since, until
	from jsonb_to_recordset($1::text::jsonb) as n (account text, id text, pending boolean, at timestamptz, action text,
		target_kind text, target_id text, actor_kind text, actor_id text, changed text[], request_id text, client_address text,
		object text, reason text, since timestamptz, until timestamptz)
	on conflict (account, id) do nothing returning 1
)
select count(*) from added
