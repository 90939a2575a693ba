-- Records the latest use of each key and of each of its hashes. It locks the keys against deletion,
-- in a fixed order.
-- $1 accounts, $2 ids, $3 hashes and $4 times of the uses, as parallel lists.
with use as (
	select * from unnest($1::text[], $2::text[], $3::bytea[], $4::timestamptz[]) as u (account, id, hash, at)
), kept as materialized (
	select k.* from (select distinct account, id from use order by account, id) u
	cross join lateral (
		select account, id, hash, previous from storageapi.keys
		where account = u.account and id = u.id and next is null limit 1 for key share) k
), latest as (
	select k.account, k.id, ''::bytea as hash, max(u.at) as at
	from kept k join use u on u.account = k.account and u.id = k.id group by 1, 2
	union all
	select k.account, k.id, u.hash, max(u.at)
	from kept k join use u on u.account = k.account and u.id = k.id and u.hash in (k.hash, k.previous) group by 1, 2, 3
)
insert into storageapi.key_uses as old (account, id, hash, at)
select account, id, hash, at from latest order by account, id, hash
on conflict (account, id, hash) do update set at = excluded.at where old.at < excluded.at
