-- Finds the last audit entry that a page of list_audit_entries looks at. Of a target there are its kind, $4, and id, $5, too.
-- $1 the account; $2 the number that those of the page are below; $3 how many are looked at, less one.
select number from storageapi.audit
where account = $1 and number < $2
order by number desc offset $3 limit 1
