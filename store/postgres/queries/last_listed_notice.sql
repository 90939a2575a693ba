-- Finds the last notice that a page of list_notices looks at. Of a target there are its kind, $4, and id, $5, too.
-- $1 the account; $2 the id of the notice that the page begins after, empty: the first page; $3 how
-- many are looked at, less one.
select number, id from storageapi.audit
where account = $1
	and number < (case when $2 = '' then 9223372036854775807 else
		coalesce((select number from storageapi.audit where account = $1 and id = $2), 0) end)
order by number desc offset $3 limit 1
