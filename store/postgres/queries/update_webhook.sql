-- Changes a webhook, and notes that.
-- $1 the account; $2 the id; $3 to $18 what it has from now on, in the order of the statement;
-- $19 changeWebhook; $20 the account's shard.
with changed as (
	update storageapi.webhooks w set url = $3, events = $4, past_events = $5, active = $6, off_reason = $7, proven_at = $8,
		failing_since = $9, warned_at = $10, balance_threshold = $11, secret = $12, previous_secret = $13,
		previous_secret_expires_at = $14, failing_event = $15, failed_again = $16, held = $17, off_at = $18,
		version = w.version + 1
	where w.account = $1 and w.id = $2 returning *
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $19::smallint, array[$20::smallint], array[no], array[0] from changed
)
select w.account, w.id, w.url, w.events, w.past_events, w.active, w.off_reason, w.proven_at, w.failing_since, w.warned_at,
	w.balance_threshold, w.secret, w.created_at, w.previous_secret, w.previous_secret_expires_at, w.failing_event, w.failed_again,
	w.held, w.off_at, w.version
from changed w
