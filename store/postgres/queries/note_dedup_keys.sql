-- Stores deduplication keys, each with the time until which it is kept, and returns how many
-- already existed.
-- $1 the account; $2 the keys and $3 their times, as parallel lists.
with given as (
	select distinct key, until from unnest($2::text[], $3::timestamptz[]) as i (key, until)
), noted as (
	insert into storageapi.dedup_keys (account, key, until)
	select $1, key, until from given order by key collate "C", until
	on conflict do nothing returning 1
)
select (select count(*) from given) - (select count(*) from noted)
