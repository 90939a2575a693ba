-- Lists accounts that have keys, webhooks or alerts. It steps from account to account in the
-- indexes, so its cost does not depend on the size of accounts.
-- $1 the account after which to begin; $2 the maximum number.
select account from (
	(with recursive a as (
		(select account from storageapi.keys where next is null and account > $1 order by account limit 1)
		union all
		select (select account from storageapi.keys where next is null and account > a.account order by account limit 1) from a
		where a.account is not null
	)
	select account from a where account is not null limit $2)
	union
	(with recursive a as (
		(select account from storageapi.webhooks where account > $1 order by account limit 1)
		union all
		select (select account from storageapi.webhooks where account > a.account order by account limit 1) from a
		where a.account is not null
	)
	select account from a where account is not null limit $2)
	union
	(with recursive a as (
		(select account from storageapi.alerts where account > $1 order by account limit 1)
		union all
		select (select account from storageapi.alerts where account > a.account order by account limit 1) from a
		where a.account is not null
	)
	select account from a where account is not null limit $2)
) a
order by account limit $2
