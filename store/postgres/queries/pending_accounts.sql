-- Lists accounts that have pending audit entries, by one look into the index for each.
-- $1 the account to begin after; $2 how many.
with recursive pending (account, n) as (
	(select account, 1 from storageapi.audit where pending and account > $1 order by account limit 1)
	union all
	(select next.account, p.n + 1
	from pending p cross join lateral (
		select a.account from storageapi.audit a where a.pending and a.account > p.account order by a.account limit 1) next
	where p.n < $2)
)
select account from pending where $2 > 0
