-- Puts webhooks on hold, and adds them to the change feed. It returns how many were not on hold
-- before, and the number of the last webhook that it examined, or -1 if there is none.
-- $1 the number after which to begin; $2 how many to examine; $3 changeWebhook.
with page as (
	select no from storageapi.webhooks where no > $1 order by no limit $2
), changed as (
	update storageapi.webhooks w set held = true, version = w.version + 1
	from page where w.no = any(array[page.no]) and not w.held returning w.no, w.account
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $3::smallint, array_agg(storageapi.shard_of(account)), array_agg(no), array_agg(0) from changed having count(*) > 0
)
select (select count(*) from changed), coalesce((select max(no) from page), -1)
