-- Selects requests with idempotency keys by their names. A page has those of keys and of webhooks.
-- $1 the account and $2 the name after which, $5 the kind there; $3 the last account; $4 how many.
select account, name, kind::text, id, sum, at from (
	(select * from storageapi.requests where kind = 0 and (account, name) >= ($1, $2) and account <= $3
		order by account, name limit $4 + 2)
	union all
	(select * from storageapi.requests where kind = 1 and (account, name) >= ($1, $2) and account <= $3
		order by account, name limit $4 + 2)) r
where (account, name, kind::text) > ($1, $2, $5)
order by account, name, kind limit $4
