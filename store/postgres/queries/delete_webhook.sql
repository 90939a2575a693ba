-- Deletes a webhook, and adds it to the change feed. Its number and id remain in past_webhooks for
-- as long as rows refer to them.
-- $1 the account; $2 the id; $3 changeWebhook; $4 the account's shard.
with gone as (
	delete from storageapi.webhooks where account = $1 and id = $2 returning no, account, id
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $3::smallint, array[$4::smallint], array[no], array[0] from gone
)
insert into storageapi.past_webhooks (no, account, id, deleted_at) select no, account, id, clock_timestamp() from gone returning no
