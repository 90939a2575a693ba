-- Selects requests with idempotency keys by account, name and kind. A page has requests of both
-- kinds, for keys and for webhooks.
-- $1 the account, $2 the name and $3 the kind after which to begin; $4 the last account; $5 the
-- maximum number.
select account, name, kind, id, sum, at, key_id from (
	(select * from storageapi.requests where kind = 0 and (account, name) >= ($1, $2) and account <= $4
		order by account, name limit $5 + 2)
	union all
	(select * from storageapi.requests where kind = 1 and (account, name) >= ($1, $2) and account <= $4
		order by account, name limit $5 + 2)) r
where (account, name, kind) > ($1, $2, $3)
order by account, name, kind limit $5
