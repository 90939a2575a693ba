-- Changes a webhook, and adds it to the change feed.
-- $1 the account; $2 the id; $3 to $19 the new values, in the order of the statement; $20
-- changeWebhook; $21 the account's shard.
with changed as (
	update storageapi.webhooks w set url = $3, events = $4, active = $5, off_reason = $6, proven_at = $7,
		failing_since = $8, warned_at = $9, secret = $10, previous_secret = $11, failing_event = $12, failed_again = $13,
		held = $14, off_at = $15, fields = $16, resources = $17, header_secrets = $18, paused_until = $19, version = w.version + 1
	where w.account = $1 and w.id = $2 returning *
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $20::smallint, array[$21::smallint], array[no], array[0] from changed
)
select w.account, w.id, w.url, w.events, w.active, w.off_reason, w.proven_at, w.failing_since, w.warned_at,
	w.secret, w.created_at, w.previous_secret, w.failing_event, w.failed_again, w.held, w.off_at, w.version, w.fields, w.header_secrets, w.paused_until
from changed w
