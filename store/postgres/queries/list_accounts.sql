-- Lists accounts that have keys, webhooks or alerts. It goes from one to the next in the indexes,
-- however much each has.
-- $1 the account before the first; $2 how many.
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
