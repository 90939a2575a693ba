-- Lists audit entries of an account, newest first. For the entries of a single target, audit.go
-- adds its id, $9.
-- $1 the account; $2 the number below which to begin; $3 the lowest number; $4 the target's kind,
-- or empty for all; $5 actions, or an empty list for all; $6 the earliest time and $7 the time
-- before which, or null; $8 the maximum number.
select number, account, id, pending, at, action, target_kind, target_id, fields
from storageapi.audit
where account = $1 and number < $2 and number >= $3 and ($4 = '' or target_kind = $4)
	and ($5::text[] = '{}' or action = any($5::text[]))
	and ($6::timestamptz is null or at >= $6) and ($7::timestamptz is null or at < $7)
order by number desc limit $8
