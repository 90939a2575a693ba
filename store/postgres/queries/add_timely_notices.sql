-- Stores notices as add_notices does, except those of an action of keys that are gone, or expire
-- at another time.
-- $1 the list, as JSON; $2 the action.
with added as (
	insert into storageapi.audit (account, id, pending, at, action, target_kind, target_id, actor_kind, actor_id, changed,
		request_id, client_address, object, reason, since, until)
	select account, id, pending, at, action, target_kind, target_id, actor_kind, actor_id, changed,
		request_id, client_address, object, reason, since, until
	from jsonb_to_recordset($1::text::jsonb) as n (account text, id text, pending boolean, at timestamptz, action text,
		target_kind text, target_id text, actor_kind text, actor_id text, changed text[], request_id text, client_address text,
		object text, reason text, since timestamptz, until timestamptz)
	where n.action <> $2::text or exists (
		select from storageapi.keys k where k.account = n.account and k.id = n.target_id and k.next is null and k.expires_at = n.until)
	on conflict (account, id) do nothing returning 1
)
select count(*) from added
