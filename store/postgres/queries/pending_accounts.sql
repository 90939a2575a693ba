-- Lists accounts that have pending audit entries, with one index lookup for each account.
-- $1 the account after which to begin; $2 the maximum number.
with recursive pending (account, n) as (
	(select account, 1 from storageapi.audit where pending and account > $1 order by account limit 1)
	union all
	(select next.account, p.n + 1
	from pending p cross join lateral (
		select a.account from storageapi.audit a where a.pending and a.account > p.account order by a.account limit 1) next
	where p.n < $2)
)
select account from pending where $2 > 0
