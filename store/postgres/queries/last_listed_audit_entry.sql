-- Finds the last audit entry that a page of list_audit_entries.sql examines. For the entries of a
-- single target, audit.go adds its kind, $4, and its id, $5.
-- $1 the account; $2 the number below which the page begins; $3 how many entries to examine, minus
-- one.
select number from storageapi.audit
where account = $1 and number < $2
order by number desc offset $3 limit 1
