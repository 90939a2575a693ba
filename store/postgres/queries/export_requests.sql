-- Selects requests with idempotency keys by their names. A page has those of keys and of webhooks.
-- $1 the account, $2 the name and $3 the kind after which; $4 the last account; $5 how many.
select account, name, kind, id, sum, at, key_id from (
	(select * from storageapi.requests where kind = 0 and (account, name) >= ($1, $2) and account <= $4
		order by account, name limit $5 + 2)
	union all
	(select * from storageapi.requests where kind = 1 and (account, name) >= ($1, $2) and account <= $4
		order by account, name limit $5 + 2)) r
where (account, name, kind) > ($1, $2, $3)
order by account, name, kind limit $5
