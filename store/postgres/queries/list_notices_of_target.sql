-- Lists notices of a target, by the index of targets: the newest first, down to a number. Of a
-- notice that was purged there is no number: what was before it was purged, too.
-- $1 the account; $2 the id of the notice that the page begins after, empty: the first page; $3 the
-- least number; $4 the kind of the target and $5 its id; $6 actions, none: all; $7 and $8 since and
-- until when, null: any time; $9 how many.
select number, account, id, pending, at, action, target_kind, target_id, actor_kind, actor_id, changed,
	request_id, client_address, object, reason, since, until
from storageapi.audit
where account = $1
	and number < (case when $2 = '' then 9223372036854775807 else
		coalesce((select number from storageapi.audit where account = $1 and id = $2), 0) end)
	and number >= $3 and target_kind = $4 and target_id = $5
	and ($6::text[] = '{}' or action = any($6::text[]))
	and ($7::timestamptz is null or at >= $7) and ($8::timestamptz is null or at < $8)
order by number desc limit $9
