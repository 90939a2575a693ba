-- Removes routine notices of an account but the latest. It waits for none that is being taken: a later call removes it.
-- $1 the account; $2 how many are kept.
with old as materialized (
	select account, id from storageapi.audit
	where account = $1 and routine
		and number <= (select number from storageapi.audit where account = $1 and routine order by number desc offset $2 limit 1)
	for update skip locked
)
delete from storageapi.audit a using old where a.account = any(array[old.account]) and a.id = old.id
