-- Locks the keys that are targets of audit entries, so that the numbers of the entries are in the
-- order of the keys' changes.
-- $1 the audit entries, as JSON.
select from storageapi.keys k where k.next is null and (k.account, k.id) in (
	select n.account, n.target_id from jsonb_to_recordset($1::text::jsonb) as n (account text, target_kind text, target_id text)
	where n.target_kind = 'key')
order by k.account, k.id for key share
